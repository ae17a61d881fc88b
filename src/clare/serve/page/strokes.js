// Strokes become the 28 x 28 pictures that the embedded drawings are, so that a drawing made here looks to the model
// like those it was taught. The embedded pictures are not the thick, centred ones that Quick, Draw! publishes: their
// lines are one pixel thin, and they lie at the top left and fill the frame. The steps below were found by measurement:
// twelve drawings whose strokes are public come out as their embedded pictures to within one level of 255
// (tests/browser/test_rendering.py).
//   1. moved to the top left and scaled alike in both directions, so that the longer side is 255;
//   2. sampled every 1 unit, simplified by Ramer-Douglas-Peucker with 2 units, rounded to whole units;
//   3. scaled by 28/256 and drawn as Wu's antialiased lines that add up, ink 255 on 0, cut at 255.

export const SIDE = 28;
const BOX = 256;
const LONGEST = 255;
const SPACING = 1;
const TOLERANCE = 2;

/** The grey picture of strokes as a player drew them, or null where there is nothing to see. */
export function drawingOf(strokes) {
  const pixels = renderStrokes(simplifyDrawing(strokes));
  return pixels.some((value) => value > 0) ? pixels : null;
}

/** Strokes in the box of 256 x 256, as the simplified files of Quick, Draw! hold them. */
export function simplifyDrawing(strokes) {
  return fitToBox(strokes).map((stroke) =>
    simplifyStroke(resampleStroke(stroke)).map(([x, y]) => [Math.round(x), Math.round(y)]),
  );
}

/** Strokes in the box become one grey byte per pixel. */
export function renderStrokes(strokes) {
  const ink = new Float64Array(SIDE * SIDE);
  for (const stroke of strokes) {
    const points = stroke.map(([x, y]) => [(x * SIDE) / BOX, (y * SIDE) / BOX]);
    for (let i = 1; i < points.length; i++) addLine(ink, points[i - 1], points[i]);
  }
  return Uint8Array.from(ink, (value) => Math.round(Math.min(value, 1) * 255));
}

function fitToBox(strokes) {
  const points = strokes.flat();
  if (!points.length) return [];
  const [left, right] = range(points.map(([x]) => x));
  const [top, bottom] = range(points.map(([, y]) => y));
  const longest = Math.max(right - left, bottom - top);
  if (longest === 0) return [];
  const scale = LONGEST / longest;
  return strokes.map((stroke) => stroke.map(([x, y]) => [(x - left) * scale, (y - top) * scale]));
}

function range(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function resampleStroke(points) {
  const sampled = [points[0]];
  let next = SPACING;
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    const length = Math.hypot(x1 - x0, y1 - y0);
    for (; next <= length; next += SPACING) {
      sampled.push([x0 + ((x1 - x0) * next) / length, y0 + ((y1 - y0) * next) / length]);
    }
    next -= length;
  }
  sampled.push(points[points.length - 1]);
  return sampled;
}

function simplifyStroke(points) {
  const kept = new Set([0, points.length - 1]);
  // A stack in place of recursion: a long stroke has thousands of samples.
  const open = [[0, points.length - 1]];
  while (open.length) {
    const [first, last] = open.pop();
    let [farthest, distance] = [first, TOLERANCE];
    for (let i = first + 1; i < last; i++) {
      const here = distanceToSegment(points[i], points[first], points[last]);
      if (here > distance) [farthest, distance] = [i, here];
    }
    if (farthest === first) continue;
    kept.add(farthest);
    open.push([first, farthest], [farthest, last]);
  }
  return points.filter((_, i) => kept.has(i));
}

function distanceToSegment([x, y], [x0, y0], [x1, y1]) {
  const squared = (x1 - x0) ** 2 + (y1 - y0) ** 2;
  const along = squared ? ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / squared : 0;
  const share = Math.min(1, Math.max(0, along));
  return Math.hypot(x - x0 - share * (x1 - x0), y - y0 - share * (y1 - y0));
}

// "Along" is the direction in which the line covers more pixels, "across" the other.
function addLine(ink, start, end) {
  const isSteep = Math.abs(end[1] - start[1]) > Math.abs(end[0] - start[0]);
  const [from, to] = [start, end]
    .map(([x, y]) => (isSteep ? { along: y, across: x } : { along: x, across: y }))
    .sort((one, other) => one.along - other.along);
  if (from.along === to.along) return;
  const slope = (to.across - from.across) / (to.along - from.along);
  const [first, last] = [Math.round(from.along), Math.round(to.along)];
  const dot = (along, weight) => {
    const across = from.across + slope * (along - from.along);
    // The size, not the value: an end just outside the frame is folded back in, as it is in the embedded pictures.
    const near = Math.floor(Math.abs(across));
    const beyond = (across - Math.floor(across)) * weight;
    addInk(ink, isSteep, along, near, 1 - beyond);
    addInk(ink, isSteep, along, near + 1, beyond);
  };
  dot(first, 1 - fraction(from.along + 0.5));
  dot(last, fraction(to.along + 0.5));
  for (let along = first + 1; along < last; along++) dot(along, 1);
}

function addInk(ink, isSteep, along, across, amount) {
  const [x, y] = isSteep ? [across, along] : [along, across];
  if (x < SIDE && y < SIDE) ink[y * SIDE + x] += amount;
}

function fraction(value) {
  return value - Math.floor(value);
}
