// The page: what is drawn or dropped goes to the guesses and to the teacher, and the model's state is shown.

import { getModel, token } from "./api.js";
import { Camera } from "./camera.js";
import { byId, element, hideProblem, showProblem } from "./dom.js";
import { Guesser, showAnswerTo } from "./guesses.js";
import { showModel, wireUndo } from "./model.js";
import { Pad, paintStrokes } from "./pad.js";
import { Photos } from "./photos.js";
import { greyPng } from "./png.js";
import { SIDE, drawingOf } from "./strokes.js";
import { Teacher } from "./teach.js";

const THUMBNAIL = 128;
const THUMBNAIL_LINE = 0.035;
let model = null;

function makePng(pixels) {
  return { blob: greyPng(pixels, SIDE), name: "drawing.png" };
}

/** Show the picture that is sent, dot by dot. */
function showSeen(pixels) {
  byId("seen-figure").hidden = pixels === null;
  if (pixels === null) return;
  const context = byId("seen").getContext("2d");
  const image = context.createImageData(SIDE, SIDE);
  pixels.forEach((value, i) => image.data.set([value, value, value, 255], 4 * i));
  context.putImageData(image, 0, 0);
}

function makeThumbnail(strokes, name) {
  const canvas = element("canvas", { width: THUMBNAIL, height: THUMBNAIL });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", name);
  // Thumbnails lie on white in both colour schemes, as paper does.
  paintStrokes(canvas.getContext("2d"), strokes, THUMBNAIL, "#1b1f24", THUMBNAIL_LINE);
  return canvas;
}

function wireDrawing(refresh) {
  const pad = new Pad(byId("pad"));
  const teacher = new Teacher(["drawing", "drawings"], refresh);
  byId("photos-title").textContent = "Or show me files";
  byId("drop-zone").querySelector("b").textContent = "Drop drawings here";
  const drawn = () => {
    const pixels = drawingOf(pad.strokes);
    return pixels === null || !model.classes.length ? [] : [makePng(pixels)];
  };
  const { photos, camera, guesser } = wirePhotos(refresh, teacher, drawn);
  const keep = () => {
    const pixels = drawingOf(pad.strokes);
    if (pixels === null) return;
    teacher.keep([{ ...makePng(pixels), thumbnail: makeThumbnail(pad.strokes, "kept drawing") }]);
    pad.clear();
  };
  // Files and the camera are looked at until something is drawn; that files are gone asks for a guess.
  pad.addEventListener("change", () => {
    camera.stop();
    photos.clear();
    showSeen(drawingOf(pad.strokes));
  });
  for (const shown of [photos, camera]) {
    shown.addEventListener("change", () => {
      if (shown.images.length) showSeen(null);
    });
  }
  pad.addEventListener("pen", () => (byId("pen").textContent = pad.isPenDown ? "Pen is down." : "Pen is up."));
  byId("pad").addEventListener("keydown", (event) => {
    if (event.key === "Enter") keep();
  });
  byId("undo-stroke").addEventListener("click", () => pad.undoStroke());
  byId("clear").addEventListener("click", () => pad.clear());
  byId("keep").addEventListener("click", keep);
  return { teacher, guesser };
}

/** Let files and the camera be guessed and kept; `drawn` gives what there is to look at without them. */
function wirePhotos(refresh, teacher, drawn = () => []) {
  const photos = new Photos();
  const camera = new Camera();
  let last = null;
  const show = (answer) => {
    last = answer;
    showAnswer(answer, photos.selected, refresh);
  };
  const chosen = () => [photos.images, camera.images].find((images) => images.length);
  const guesser = new Guesser(() => (model.classes.length ? (chosen() ?? drawn()) : []), show);
  photos.addEventListener("change", () => {
    byId("keep-photos").disabled = !photos.images.length;
    if (photos.images.length) camera.stop();
    guesser.ask();
  });
  camera.addEventListener("change", () => guesser.ask());
  camera.addEventListener("keep", (event) => teacher.keep(event.detail));
  photos.addEventListener("select", () => showAnswer(last, photos.selected, refresh));
  byId("keep-photos").addEventListener("click", () => {
    teacher.keep(photos.take());
    photos.clear();
  });
  return { teacher, guesser, photos, camera };
}

function showAnswer(answer, position, refresh) {
  showAnswerTo(answer?.answers[position] ?? null, invitation());
  // The model was taught or taken back elsewhere.
  if (answer && answer.version !== model.version) refresh();
}

function invitation() {
  if (!model.classes.length) return "I know nothing yet. Teach me something, then I can guess.";
  return model.is_drawing_model ? "Draw or drop a file, and I guess." : "Drop a photo or use the camera, and I guess.";
}

function wireToken(refresh) {
  byId("token").value = token.get();
  byId("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    token.set(byId("token").value.trim());
    byId("token-news").textContent = token.get() ? "Kept for this visit." : "Forgotten.";
    hideProblem();
    refresh();
  });
}

async function start() {
  let parts = null;
  const load = async () => {
    const before = model?.version;
    model = await getModel();
    showModel(model);
    parts?.teacher.showModel(model);
    if (before !== undefined && before !== model.version) parts?.guesser.ask();
  };
  const refresh = () => load().catch(showProblem);
  byId("problem-close").addEventListener("click", hideProblem);
  wireToken(refresh);
  wireUndo(refresh);
  await load();
  document.body.classList.add(model.is_drawing_model ? "draws" : "looks");
  parts = model.is_drawing_model ? wireDrawing(refresh) : wirePhotos(refresh, new Teacher(["photo", "photos"], refresh));
  parts.teacher.showModel(model);
  showAnswerTo(null, invitation());
  document.body.dataset.ready = "yes";
}

start().catch(showProblem);
