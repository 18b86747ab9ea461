/* Why an image that was found is like the one that asked: both with their heat, and in words. */

import * as api from "./api.js";
import { button, element, named } from "./elements.js";

/* `ask(id)`: promises the explanation. */
export function whyButton(hit, ask) {
  return button("?", () => show(hit, ask), {
    "aria-label": `Why alike: ${named(hit)}, ${hit.name}`, title: "Why alike?", "data-call": "why" });
}

async function show(hit, ask) {
  const body = element("div", { "aria-live": "polite" }, element("p", {}, "Looking at both images …"));
  const close = button("Close", () => dialog.close());
  const dialog = element("dialog", { id: "why", class: "wide", "aria-labelledby": "why-title", onclose: () => dialog.remove() },
    element("h2", { id: "why-title" }, `Why alike: ${named(hit)}`), body, element("p", {}, close));
  document.body.append(dialog);
  dialog.showModal();
  try {
    const { image: webp, sentences } = await ask(hit.id);
    const url = URL.createObjectURL(api.webp(webp));
    const image = element("img", { src: url, alt: sentences.join(" "), onload: () => URL.revokeObjectURL(url) });
    body.replaceChildren(image, ...sentences.map((text) => element("p", {}, text)));
  } catch (error) {
    body.replaceChildren(element("p", { role: "alert" }, error.message));
  }
}
