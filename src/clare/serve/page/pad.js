// A square to draw on with mouse, pen, finger or keyboard; strokes are lists of points in 0..1.

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const STEP = 1 / 64;
const LARGE_STEP = 1 / 16;
const LINE_WIDTH = 0.018;

export class Pad extends EventTarget {
  #canvas;
  #strokes = [];
  #pointer = null;
  #cursor = [0.5, 0.5];
  #isPenDown = false;
  #held = new Set();

  constructor(canvas) {
    super();
    this.#canvas = canvas;
    this.#listenToPointers();
    this.#listenToKeys();
    new ResizeObserver(() => this.#paint()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  get strokes() {
    return this.#strokes.map((stroke) => stroke.map((point) => [...point]));
  }

  get isPenDown() {
    return this.#isPenDown;
  }

  undoStroke() {
    this.#strokes.pop();
    this.#liftPen();
    this.#changed();
  }

  clear() {
    this.#strokes = [];
    this.#liftPen();
    this.#changed();
  }

  #changed() {
    this.#paint();
    this.dispatchEvent(new Event("change"));
  }

  #liftPen() {
    this.#pointer = null;
    this.#isPenDown = false;
    this.dispatchEvent(new Event("pen"));
  }

  #listenToPointers() {
    const canvas = this.#canvas;
    canvas.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary || event.button !== 0) return;
      this.#liftPen();
      this.#pointer = event.pointerId;
      canvas.setPointerCapture(event.pointerId);
      this.#strokes.push([this.#locate(event)]);
      this.#changed();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerId !== this.#pointer) return;
      // Between two frames a pen reports several places; without them fast curves become polygons.
      const places = event.getCoalescedEvents?.() ?? [];
      this.#strokes.at(-1).push(...(places.length ? places : [event]).map((place) => this.#locate(place)));
      this.#changed();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, (event) => {
        if (event.pointerId === this.#pointer) this.#pointer = null;
      });
    }
  }

  #locate(event) {
    const box = this.#canvas.getBoundingClientRect();
    const share = (value) => Math.min(1, Math.max(0, value));
    return [share((event.clientX - box.left) / box.width), share((event.clientY - box.top) / box.height)];
  }

  #listenToKeys() {
    const canvas = this.#canvas;
    canvas.addEventListener("keydown", (event) => {
      if (event.altKey || event.metaKey || (event.ctrlKey && event.key !== "z")) return;
      if (this.#press(event)) event.preventDefault();
    });
    canvas.addEventListener("keyup", (event) => this.#held.delete(event.key));
    canvas.addEventListener("focus", () => this.#paint());
    canvas.addEventListener("blur", () => {
      this.#held.clear();
      this.#liftPen();
      this.#paint();
    });
  }

  #press(event) {
    if (event.key in ARROWS) {
      this.#held.add(event.key);
      this.#moveCursor(event.shiftKey ? LARGE_STEP : STEP);
    } else if (event.key === " ") this.#togglePen();
    else if (event.key === "Backspace" || (event.ctrlKey && event.key === "z")) this.undoStroke();
    else if (event.key === "Delete") this.clear();
    else return false;
    return true;
  }

  #togglePen() {
    this.#isPenDown = !this.#isPenDown;
    if (this.#isPenDown) this.#strokes.push([[...this.#cursor]]);
    this.dispatchEvent(new Event("pen"));
    this.#changed();
  }

  // Two arrows held together go aslant.
  #moveCursor(step) {
    for (const key of this.#held) {
      this.#cursor = this.#cursor.map((value, axis) => Math.min(1, Math.max(0, value + ARROWS[key][axis] * step)));
    }
    if (!this.#isPenDown) return this.#paint();
    this.#strokes.at(-1).push([...this.#cursor]);
    return this.#changed();
  }

  #paint() {
    const side = Math.round(this.#canvas.clientWidth * devicePixelRatio);
    if (this.#canvas.width !== side) this.#canvas.width = this.#canvas.height = side;
    const context = this.#canvas.getContext("2d");
    context.clearRect(0, 0, side, side);
    paintStrokes(context, this.#strokes, side, getComputedStyle(this.#canvas).color);
    if (this.#canvas.matches(":focus-visible")) this.#paintCursor(context, side);
  }

  #paintCursor(context, side) {
    const [x, y] = this.#cursor.map((value) => value * side);
    context.strokeStyle = context.fillStyle = getComputedStyle(this.#canvas).accentColor;
    context.lineWidth = Math.max(2, side * 0.006);
    context.beginPath();
    context.arc(x, y, side * 0.02, 0, 2 * Math.PI);
    if (this.#isPenDown) context.fill();
    else context.stroke();
  }
}

/** Paint strokes as a person likes to see them: smooth, round and of one width. */
export function paintStrokes(context, strokes, side, colour, lineWidth = LINE_WIDTH) {
  context.strokeStyle = colour;
  context.lineWidth = side * lineWidth;
  context.lineCap = context.lineJoin = "round";
  for (const stroke of strokes) {
    context.beginPath();
    context.moveTo(stroke[0][0] * side, stroke[0][1] * side);
    for (const [x, y] of stroke.length > 1 ? stroke.slice(1) : stroke) context.lineTo(x * side, y * side);
    context.stroke();
  }
}
