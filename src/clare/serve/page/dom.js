// Small helpers for the document; text goes in as text, never as markup.

export const byId = (id) => document.getElementById(id);

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export function replaceChildren(parent, children) {
  parent.replaceChildren(...children);
}

export const percent = (share) => (share > 0 && share < 0.005 ? "< 1 %" : `${(100 * share).toFixed(0)} %`);

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString()} ${number === 1 ? one : many}`;

export function when(instant) {
  const date = new Date(instant);
  return Number.isNaN(date.getTime()) ? instant : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

export function timeElement(instant) {
  return element("time", { dateTime: instant, textContent: when(instant) });
}

/** Show what went wrong in the server's own sentence, until the next thing goes right. */
export function showProblem(error) {
  byId("problem-text").textContent = error.message;
  byId("problem").hidden = false;
}

export function hideProblem() {
  byId("problem").hidden = true;
}
