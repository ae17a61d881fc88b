// "Teach me": collect pictures of something new, name it, and watch it being learnt.

import { getJob, learn } from "./api.js";
import { byId, count, element, hideProblem, replaceChildren, showProblem } from "./dom.js";

const ENOUGH = 10;
const POLL_MS = 400;
const RETRY_MS = 2000;
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export class Teacher {
  #things;
  #refresh;
  #kept = [];
  #known = new Set();
  #isLearning = false;

  /** `things` is what the pictures are called: drawings or photos. */
  constructor(things, refresh) {
    this.#things = things;
    this.#refresh = refresh;
    byId("class-name").addEventListener("input", () => this.#show());
    byId("teach-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!byId("teach").disabled) this.#teach();
    });
    byId("discard").addEventListener("click", () => this.#discardAll());
    this.#show();
  }

  /** Keep pictures ({blob, name, thumbnail}) until they are sent. */
  keep(pictures) {
    this.#kept.push(...pictures);
    this.#say("");
    this.#show();
  }

  showModel(model) {
    this.#known = new Set(model.classes.map((each) => each.name));
    this.#show();
    if (model.learning !== null && !this.#isLearning) this.#watch(model.learning);
  }

  get #name() {
    return byId("class-name").value.trim();
  }

  #say(sentence) {
    byId("teach-news").textContent = sentence;
  }

  #show() {
    const isKnown = this.#known.has(this.#name);
    const number = this.#kept.length;
    const [one, many] = this.#things;
    byId("kept-count").textContent =
      number < ENOUGH ? `${number} of about ${ENOUGH} ${many}` : `${count(number, one, many)}, enough to teach`;
    byId("quick-label").hidden = isKnown;
    byId("teach").textContent = isKnown ? `Give more of ${this.#name}` : `Teach ${this.#name || "it"}`;
    byId("teach").disabled = this.#isLearning || !number || !this.#name;
    byId("discard").hidden = !number;
    const slots = Array.from({ length: Math.max(0, ENOUGH - number) }, () =>
      element("li", { className: "slot", ariaHidden: "true" }),
    );
    replaceChildren(byId("kept"), [...this.#kept.map((picture, i) => this.#makeThumbnail(picture, i)), ...slots]);
  }

  #makeThumbnail(picture, position) {
    const remove = element("button", { type: "button", className: "remove", textContent: "×" });
    remove.setAttribute("aria-label", `Remove ${this.#things[0]} ${position + 1}`);
    remove.addEventListener("click", () => {
      this.#kept.splice(position, 1);
      this.#show();
      // The button is gone with its picture; focus goes on to the next, so that the keyboard does not lose its place.
      const buttons = byId("kept").querySelectorAll("button");
      (buttons[Math.min(position, buttons.length - 1)] ?? byId("class-name")).focus();
    });
    return element("li", {}, picture.thumbnail, remove);
  }

  #discardAll() {
    this.#kept = [];
    this.#show();
    byId("class-name").focus();
  }

  async #teach() {
    const name = this.#name;
    const quick = byId("quick").checked ? "quick" : "learn";
    const mode = this.#known.has(name) ? "update" : quick;
    this.#say("");
    this.#setLearning(true, "Sending");
    try {
      const { job } = await learn(this.#kept, name, mode);
      hideProblem();
      await this.#watch(job, name);
    } catch (error) {
      this.#setLearning(false);
      showProblem(error);
    }
  }

  async #watch(id, name = null) {
    this.#setLearning(true, "Waiting");
    const job = await this.#followToTheEnd(id);
    this.#setLearning(false);
    if (job?.state === "done") {
      this.#say(`Learnt ${job.change?.classes?.join(", ") ?? name}.`);
      if (name !== null) this.#forgetKept();
    }
    await this.#refresh();
  }

  async #followToTheEnd(id) {
    for (;;) {
      try {
        const job = await getJob(id);
        hideProblem();
        if (job.state === "failed") showProblem({ message: job.error });
        if (job.state === "failed" || job.state === "done") return job;
        this.#showProgress(job);
        await pause(POLL_MS);
      } catch (error) {
        showProblem(error);
        if (error.status !== 0) return null;
        await pause(RETRY_MS);
      }
    }
  }

  #forgetKept() {
    this.#kept = [];
    byId("class-name").value = "";
    this.#show();
  }

  #setLearning(isLearning, step = "") {
    this.#isLearning = isLearning;
    byId("job").hidden = !isLearning;
    if (isLearning) this.#showProgress({ progress: 0, step, seconds_left: null });
    byId("teach").disabled = isLearning;
    byId("undo").disabled ||= isLearning;
    this.#show();
  }

  #showProgress({ progress, step, seconds_left: seconds }) {
    byId("job-progress").value = progress;
    const left = seconds === null ? "" : `, about ${count(Math.ceil(seconds), "second")} left`;
    byId("job-step").textContent = `${step || "Learning"}${left}`;
  }
}
