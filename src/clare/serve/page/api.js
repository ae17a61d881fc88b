// The service's answers as values, and its refusals as errors that carry its own sentence.

const TOKEN_KEY = "clare-token";

export class Refusal extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(TOKEN_KEY, value) : sessionStorage.removeItem(TOKEN_KEY)),
};

export const getModel = () => ask("GET", "/model");

export const getJob = (id) => ask("GET", `/jobs/${encodeURIComponent(id)}`);

export const undo = () => ask("POST", "/undo");

export function predict(images, signal) {
  return ask("POST", "/predict?top=5", form(images), signal);
}

export function learn(images, label, mode) {
  return ask("POST", `/learn?mode=${mode}`, form(images, label));
}

function form(images, label) {
  const data = new FormData();
  for (const image of images) {
    data.append("images", image.blob, image.name);
    if (label !== undefined) data.append("labels", label);
  }
  return data;
}

async function ask(method, path, body, signal) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer; is it still running?", 0);
  }
  if (response.ok) return response.json();
  throw new Refusal(await sentenceOf(response), response.status);
}

async function sentenceOf(response) {
  const text = await response.text();
  try {
    const { detail } = JSON.parse(text);
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((each) => each.msg).join("; ");
  } catch {
    // Not JSON: a proxy in between may answer in its own words, of which only the status is worth showing.
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}
