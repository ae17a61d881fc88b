// The camera: what it sees is looked at again and again, and kept to teach as long as a button is held.

import { byId, element, showProblem } from "./dom.js";

const LOOK_MS = 600;
const KEEP_MS = 300;
const LONGEST_SIDE = 640;
const QUALITY = 0.9;

export class Camera extends EventTarget {
  #view = byId("camera-view");
  #stream = null;
  #looking = null;
  #keeping = null;
  #image = null;

  constructor() {
    super();
    // Browsers give pages of other hosts no camera unless they come by HTTPS.
    byId("camera").hidden = !navigator.mediaDevices;
    byId("camera-switch").addEventListener("click", () => (this.#stream ? this.stop() : this.#start()));
    const hold = byId("camera-keep");
    hold.addEventListener("pointerdown", () => {
      this.#keep();
      this.#keeping ??= setInterval(() => this.#keep(), KEEP_MS);
    });
    for (const name of ["pointerup", "pointerleave", "pointercancel"]) hold.addEventListener(name, () => this.#letGo());
    // Keys and screen readers click without a pointer, and keep one picture each time.
    hold.addEventListener("click", (event) => {
      if (event.detail === 0) this.#keep();
    });
  }

  /** What was seen last, as a list of one picture or none. */
  get images() {
    return this.#image ? [this.#image] : [];
  }

  stop() {
    this.#letGo();
    clearInterval(this.#looking);
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = this.#image = this.#view.srcObject = null;
    this.#show();
  }

  async #start() {
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    } catch (error) {
      showProblem({ message: `The camera cannot be used: ${error.message || error.name}. Allow it, or choose files.` });
      return;
    }
    this.#view.srcObject = this.#stream;
    this.#show();
    await this.#view.play();
    this.#looking = setInterval(() => this.#look(), LOOK_MS);
    this.#look();
  }

  async #look() {
    const image = await this.#frame();
    // It may have been switched off meanwhile.
    if (!this.#stream || !image) return;
    this.#image = image;
    this.dispatchEvent(new Event("change"));
  }

  async #keep() {
    const image = await this.#frame();
    if (!image) return;
    const thumbnail = element("img", { src: URL.createObjectURL(image.blob), alt: "kept from the camera" });
    this.dispatchEvent(new CustomEvent("keep", { detail: [{ ...image, thumbnail }] }));
  }

  #letGo() {
    clearInterval(this.#keeping);
    this.#keeping = null;
  }

  /** Return the picture of this moment, no larger than a model needs, or nothing where the camera is not ready. */
  async #frame() {
    const { videoWidth: width, videoHeight: height } = this.#view;
    if (!this.#stream || !width) return null;
    const scale = Math.min(1, LONGEST_SIDE / Math.max(width, height));
    const canvas = new OffscreenCanvas(Math.round(scale * width), Math.round(scale * height));
    canvas.getContext("2d").drawImage(this.#view, 0, 0, canvas.width, canvas.height);
    return { blob: await canvas.convertToBlob({ type: "image/jpeg", quality: QUALITY }), name: "camera.jpg" };
  }

  #show() {
    const isOn = this.#stream !== null;
    this.#view.hidden = byId("camera-keep").hidden = !isOn;
    byId("camera-switch").textContent = isOn ? "Switch the camera off" : "Use the camera";
  }
}
