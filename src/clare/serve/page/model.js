// What the model knows: room left, classes by task, and the history with its undo.

import { undo } from "./api.js";
import { byId, count, element, hideProblem, percent, replaceChildren, showProblem, timeElement, when } from "./dom.js";

const FEW_CLASSES = 30;
const MOST_SHOWN = 500;
const KINDS = {
  create: "Made",
  learn: "Learnt",
  quick: "Learnt quickly",
  update: "More pictures of",
  remove: "Removed",
  merge: "Merged",
};

export function showModel(model) {
  const tasks = new Set(model.classes.map((each) => each.task)).size;
  document.title = `${model.name} · clare`;
  byId("model-name").textContent = model.name;
  byId("summary").textContent = model.classes.length
    ? `knows ${count(model.classes.length, "class", "classes")} from ${count(tasks, "task")}`
    : "knows nothing yet: teach it something";
  byId("token-form").hidden = !model.needs_token;
  showCapacity(model);
  showClasses(model.classes);
  showHistory(model);
}

function showCapacity({ capacity, tasks_left: tasksLeft }) {
  byId("capacity").hidden = capacity === null;
  if (capacity === null) return;
  const { num_coordinates: all, num_free: free } = capacity;
  const share = all ? (all - free) / all : 0;
  byId("gauge-fill").style.width = `${100 * share}%`;
  byId("gauge").setAttribute("aria-valuenow", (100 * share).toFixed(1));
  byId("capacity-text").textContent =
    `${percent(share)} used: ${(all - free).toLocaleString()} of ${count(all, "coordinate")}` +
    (tasksLeft === null ? "" : `, room for about ${count(tasksLeft, "more task", "more tasks")}`);
}

function showClasses(classes) {
  const tasks = groupByTask(classes);
  const numbers = [...tasks.keys()].sort((one, other) => other - one);
  byId("no-classes").hidden = numbers.length > 0;
  replaceChildren(
    byId("tasks"),
    numbers.map((number, i) => makeTask(number, tasks.get(number), i === 0 || classes.length <= FEW_CLASSES)),
  );
}

function groupByTask(classes) {
  const tasks = new Map();
  for (const each of classes) {
    if (!tasks.has(each.task)) tasks.set(each.task, []);
    tasks.get(each.task).push(each);
  }
  return tasks;
}

function makeTask(number, classes, isOpen) {
  // Thousands of elements would keep the browser busy; the others are counted.
  const more = classes.length - MOST_SHOWN;
  const chips = classes.slice(0, MOST_SHOWN).map((each) =>
    element(
      "li",
      { title: [`${count(each.num_images, "picture")}, ${when(each.taught_at)}`, accuracyTitle(each.held_back)].join("") },
      each.name,
      element("small", { textContent: ` ${each.num_images}` }),
      accuracyText(each.held_back) ? element("small", { className: "accuracy", textContent: ` ${accuracyText(each.held_back)}` }) : "",
    ),
  );
  return element(
    "details",
    { open: isOpen },
    element(
      "summary",
      {},
      `Task ${number}`,
      element("span", {}, ` ${count(classes.length, "class", "classes")}, `, timeElement(classes[0].taught_at)),
    ),
    element("ul", { className: "chips" }, ...chips, more > 0 ? element("li", { textContent: `and ${more} more` }) : ""),
  );
}

/** How many held-back pictures of a class are named rightly by the model as it is now. */
function accuracyText(heldBack) {
  if (!heldBack || heldBack.num_held_back === 0) return "";
  const share = percent(heldBack.num_correct / heldBack.num_held_back);
  return heldBack.is_estimate ? `about ${share}` : share;
}

function accuracyTitle(heldBack) {
  if (!accuracyText(heldBack)) return "";
  return `; ${heldBack.num_correct} of ${heldBack.num_held_back} held-back pictures named rightly, ${when(heldBack.measured_at)}`;
}

function showHistory({ history, learning }) {
  const standing = standingChanges(history);
  const changes = history.map((change) => makeChange(change, standing.includes(change)));
  replaceChildren(byId("history"), changes.reverse());
  const last = standing.at(-1);
  byId("undo").disabled = !last || last.kind === "create" || learning !== null;
  byId("undo-news").textContent = "";
  byId("undo-what").textContent = last ? describe(last) : "";
}

/** The changes that were not taken back, oldest first; the last of them is what an undo takes back. */
function standingChanges(history) {
  const standing = [];
  for (const change of history) {
    if (change.kind === "undo") standing.pop();
    else standing.push(change);
  }
  return standing;
}

function makeChange(change, isStanding) {
  const accuracy = change.report?.accuracy;
  return element(
    "li",
    { className: isStanding || change.kind === "undo" ? "" : "gone" },
    element("span", { textContent: describe(change) }),
    typeof accuracy === "number" ? element("b", { title: "of held-back pictures" }, percent(accuracy)) : "",
    timeElement(change.at),
    isStanding && Object.keys(change.report?.fallen ?? {}).length ? element("em", {}, describeFall(change.report.fallen)) : "",
  );
}

/** Which earlier classes a lesson cost more than ten points. */
function describeFall(fallen) {
  const lines = Object.entries(fallen).map(
    ([name, { before, after, num_held_back: all }]) => `${name} ${before} → ${after} of ${all}`,
  );
  const shown = lines.length > 5 ? [...lines.slice(0, 5), `${lines.length - 5} more`] : lines;
  return `Fewer pictures of earlier classes are named rightly: ${shown.join(", ")}. Undo takes the lesson back.`;
}

function describe({ kind, classes, report }) {
  if (kind === "undo") return `Taken back: ${describe({ kind: report.kind, classes })}`;
  if (kind === "rename") return `Renamed ${classes.join(" to ")}`;
  const shown = classes.length > 6 ? [...classes.slice(0, 5), `${classes.length - 5} more`] : classes;
  return [KINDS[kind] ?? kind, shown.join(", ")].filter(Boolean).join(" ");
}

/** Let the undo button ask once and then take back the last change. */
export function wireUndo(refresh) {
  const dialog = byId("undo-dialog");
  byId("undo").addEventListener("click", () => dialog.showModal());
  byId("undo-cancel").addEventListener("click", () => dialog.close());
  byId("undo-confirm").addEventListener("click", async () => {
    dialog.close();
    try {
      await undo();
      hideProblem();
      await refresh();
      byId("undo-news").textContent = "Done.";
    } catch (error) {
      showProblem(error);
    }
  });
}
