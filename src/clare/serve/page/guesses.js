// Guesses with bars, asked for while a drawing grows.

import { predict } from "./api.js";
import { byId, element, percent, hideProblem, showProblem } from "./dom.js";

const QUIET_MS = 120;
const LATEST_MS = 400;
const ANNOUNCE_MS = 700;

/** Asks for guesses when changes pause, at the latest every 400 ms; a newer question aborts the older one. */
export class Guesser {
  #images;
  #show;
  #timer = null;
  #waitingSince = null;
  #request = null;

  constructor(images, show) {
    this.#images = images;
    this.#show = show;
  }

  ask() {
    byId("guesses").setAttribute("aria-busy", "true");
    this.#waitingSince ??= performance.now();
    const latest = this.#waitingSince + LATEST_MS - performance.now();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#send(), Math.max(0, Math.min(QUIET_MS, latest)));
  }

  async #send() {
    this.#timer = this.#waitingSince = null;
    this.#request?.abort();
    const request = (this.#request = new AbortController());
    const images = this.#images();
    try {
      const answer = images.length ? await predict(images, request.signal) : null;
      if (request.signal.aborted) return;
      if (answer) hideProblem();
      this.#show(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      showProblem(error);
    }
    if (this.#timer === null) byId("guesses").setAttribute("aria-busy", "false");
  }
}

let announcement = null;

/** Show the answer to an image, or the invitation where there is none. */
export function showAnswerTo(answer, invitation) {
  byId("invitation").textContent = invitation;
  byId("invitation").hidden = answer !== null;
  byId("guess-rows").hidden = answer === null;
  byId("verdict").hidden = answer === null;
  // The names share a whole among themselves, which would seem to contradict the headline.
  byId("condition").hidden = !answer?.is_unknown;
  clearTimeout(announcement);
  const verdict = answer === null ? "" : verdictOf(answer);
  // On a phone the guesses lie below the pad, so their first line is repeated above it.
  for (const brief of document.querySelectorAll(".brief")) brief.textContent = verdict;
  if (answer === null) {
    byId("guess-news").textContent = "";
    return;
  }
  byId("verdict").textContent = verdict;
  byId("guesses").classList.toggle("unknown", answer.is_unknown);
  const rows = answer.guesses.map(({ name, probability }) => ({ name, share: probability }));
  showRows([...rows, { name: "none of these", share: answer.unknown, isUnknown: true }]);
  // Said only once the picture rests, or a screen reader would talk over itself.
  announcement = setTimeout(() => (byId("guess-news").textContent = verdict), ANNOUNCE_MS);
}

function verdictOf(answer) {
  if (answer.is_unknown) return "None of these";
  const [best] = answer.guesses;
  return best.probability < 0.5 ? `Perhaps ${best.name}?` : `I see ${best.name}`;
}

// Rows are kept and changed, so that the bars glide.
function showRows(rows) {
  const list = byId("guess-rows");
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) list.append(makeRow());
  rows.forEach(({ name, share, isUnknown = false }, i) => {
    const row = list.children[i];
    const [label, track, figure] = row.children;
    row.classList.toggle("none", isUnknown);
    label.textContent = name;
    figure.textContent = percent(share);
    track.firstChild.style.width = `${100 * share}%`;
  });
}

function makeRow() {
  return element(
    "li",
    {},
    element("span", { className: "name" }),
    element("span", { className: "track", ariaHidden: "true" }, element("span", { className: "fill" })),
    element("span", { className: "figure" }),
  );
}
