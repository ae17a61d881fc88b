// For models of photos: drop or choose images in place of drawing.

import { byId, element, replaceChildren } from "./dom.js";

export class Photos extends EventTarget {
  #photos = [];
  #selected = 0;

  constructor() {
    super();
    const zone = byId("drop-zone");
    byId("files").addEventListener("change", (event) => {
      this.#add(event.target.files);
      event.target.value = "";
    });
    for (const name of ["dragenter", "dragover"]) {
      zone.addEventListener(name, (event) => {
        event.preventDefault();
        zone.classList.add("over");
      });
    }
    for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
    // A file dropped beside the zone must not make the browser leave the page.
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      this.#add(event.dataTransfer.files);
    });
  }

  get images() {
    return this.#photos;
  }

  get selected() {
    return this.#selected;
  }

  clear() {
    this.#photos = [];
    this.#changed();
  }

  /** Hand over all photos, each with a picture of itself. */
  take() {
    return this.#photos.map(({ blob, name, url }) => {
      return { blob, name, thumbnail: element("img", { src: url, alt: name }) };
    });
  }

  #add(files) {
    const photos = [...files].map((blob) => ({ blob, name: blob.name, url: URL.createObjectURL(blob) }));
    if (!photos.length) return;
    this.#photos = photos;
    this.#changed();
  }

  #changed() {
    this.#selected = 0;
    this.#show();
    this.dispatchEvent(new Event("change"));
  }

  #show() {
    replaceChildren(
      byId("photo-list"),
      this.#photos.map(({ name, url }, i) => {
        const button = element("button", { type: "button" }, element("img", { src: url, alt: name }));
        button.setAttribute("aria-pressed", String(i === this.#selected));
        button.addEventListener("click", () => {
          this.#selected = i;
          this.#show();
          byId("photo-list").querySelectorAll("button")[i].focus();
          this.dispatchEvent(new Event("select"));
        });
        return element("li", {}, button);
      }),
    );
  }
}
