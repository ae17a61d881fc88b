// What the page does beyond showing: themes, sorting, highlighting, values under the pointer, copying.
// Everything is added by the script itself, so that without it nothing on the page is dead.
"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

const tip = make("div", { className: "tip", hidden: true });
tip.setAttribute("role", "status");
document.body.append(tip);

function tell(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const widest = document.documentElement.clientWidth;
  const left = Math.min(Math.max(x - tip.offsetWidth / 2, 4), widest - tip.offsetWidth - 4);
  tip.style.left = `${left + scrollX}px`;
  tip.style.top = `${y - tip.offsetHeight - 14 + scrollY}px`;
}

function hush() {
  tip.hidden = true;
}

function addThemes() {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = make("button", { type: "button", className: "theme" });
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const name = () => {
    button.textContent = now() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
  };
  try {
    const kept = localStorage.getItem("clare-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* A browser may forbid a local page to keep anything. */ }
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("clare-theme", root.dataset.theme);
    } catch { /* The choice then lasts as long as the page. */ }
    name();
  });
  dark.addEventListener("change", name);
  name();
  document.querySelector("header").append(button);
}

function keyOf(cell) {
  if (cell.tagName === "TH") return cell.textContent.toLowerCase();
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
}

function compareKeys(one, other, sign) {
  // What has no value stands last, whichever way one sorts.
  if (one === null || other === null) return (one === null) - (other === null);
  return sign * (one < other ? -1 : one > other ? 1 : 0);
}

function sortBy(table, column, header) {
  const isNumber = column > 0;
  const before = header.getAttribute("aria-sort");
  const first = isNumber ? "descending" : "ascending";
  const second = isNumber ? "ascending" : "descending";
  const order = before === first ? second : first;
  for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", order);
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row.cells[column]) }));
  const sign = order === "ascending" ? 1 : -1;
  rows.sort((one, other) => compareKeys(one.key, other.key, sign));
  body.append(...rows.map(({ row }) => row));
}

function addSorting() {
  for (const table of all("table.sortable")) {
    all("thead th", table).forEach((header, column) => {
      const button = make("button", { type: "button", textContent: header.textContent });
      header.replaceChildren(button);
      button.addEventListener("click", () => sortBy(table, column, header));
    });
  }
}

let pinned = null;

function light(key) {
  const lit = key ?? pinned;
  document.body.classList.toggle("lit", lit !== null);
  for (const each of all(".series, .legend button")) each.classList.toggle("lit", each.dataset.key === lit);
}

function onScreen(svg, x, y) {
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.viewBox.baseVal.width;
  return [box.left + x * scale, box.top + y * scale];
}

function tellPoint(svg, series, index) {
  const [x, y, where, value] = series.points[index];
  tell(`${series.label}, ${where}: ${value}`, ...onScreen(svg, x, y));
}

function followPointer(svg, curves) {
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = { distance: 30 };
    for (const series of curves) {
      series.points.forEach((point, index) => {
        const distance = Math.hypot(point[0] - x, point[1] - y);
        if (distance < best.distance) best = { distance, series, index };
      });
    }
    light(best.series ? best.series.key : null);
    if (best.series) tellPoint(svg, best.series, best.index);
    else hush();
  });
  svg.addEventListener("pointerleave", () => {
    light(null);
    hush();
  });
}

function followEntry(button, svg, series) {
  let index = series.points.length - 1;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("pointerenter", () => light(series.key));
  button.addEventListener("pointerleave", () => light(null));
  button.addEventListener("focus", () => {
    light(series.key);
    if (button.matches(":focus-visible")) tellPoint(svg, series, index);
  });
  button.addEventListener("blur", () => {
    light(null);
    hush();
  });
  button.addEventListener("click", () => {
    pinned = pinned === series.key ? null : series.key;
    for (const each of all(".legend button")) each.setAttribute("aria-pressed", each.dataset.key === pinned);
    light(pinned);
  });
  button.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    index = Math.min(Math.max(index + step, 0), series.points.length - 1);
    tellPoint(svg, series, index);
  });
}

function addHighlights() {
  for (const figure of all("figure.chart:has(svg.curves)")) {
    const svg = figure.querySelector("svg.curves");
    const curves = all(".series[data-points]", svg).map(({ dataset }) => ({
      key: dataset.key, label: dataset.label, points: JSON.parse(dataset.points),
    }));
    followPointer(svg, curves);
    for (const button of all(".legend button", figure)) {
      followEntry(button, svg, curves.find(({ key }) => key === button.dataset.key));
    }
  }
}

function addCellValues() {
  for (const svg of all("svg.grid")) {
    const values = JSON.parse(svg.dataset.values);
    const { across, downward } = svg.dataset;
    const [left, top, wide, high] = JSON.parse(svg.dataset.box);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const row = Math.floor((((event.clientY - box.top) * scale - top) / high) * values.length);
      const column = Math.floor((((event.clientX - box.left) * scale - left) / wide) * values[0].length);
      const value = values[row]?.[column];
      if (value === undefined || value === null) hush();
      else tell(`${downward} ${row + 1}, ${across} ${column + 1}: ${value} %`, event.clientX, event.clientY);
    });
    svg.addEventListener("pointerleave", hush);
  }
}

async function copy(text, pre) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(pre);
    return false;
  }
}

function addCopying() {
  for (const pre of all("pre.command")) {
    const frame = make("div", { className: "copied" });
    const button = make("button", { type: "button", textContent: "Copy" });
    pre.replaceWith(frame);
    frame.append(pre, button);
    button.addEventListener("click", async () => {
      button.textContent = (await copy(pre.textContent, pre)) ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
}

addThemes();
addSorting();
addHighlights();
addCellValues();
addCopying();
document.body.dataset.ready = "";
