/* The keys, and whether they are listened to. */

import { element } from "./elements.js";

const KEY = "unseen.keys";
const KEYS = [
  ["/", "find a label"],
  ["o", "choose images"],
  ["h", "start"],
  ["m", "map"],
  ["s", "selection"],
  ["arrow keys", "from image to image"],
  ["Enter", "open an image large"],
  ["l", "more like this"],
  ["x", "select it, or no longer"],
  ["y, n", "right: more like it; not this one"],
  ["[ ]", "page, or image, before and after"],
  ["Escape", "back"],
];

export const listens = () => localStorage.getItem(KEY) !== "off";

export function help() {
  const box = element("input", { type: "checkbox", onchange: () => localStorage.setItem(KEY, box.checked ? "on" : "off") });
  box.checked = listens();
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = element("dialog", { id: "keys", "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    element("h2", { id: "keys-title" }, "Keys"),
    element("dl", { class: "keys" }, ...KEYS.map(([key, text]) => element("div", {}, element("dt", {}, element("kbd", {}, key)), element("dd", {}, text)))),
    element("p", { class: "small" }, "On your image: arrow keys move a box, with shift they size it, Enter searches. On the map: arrow keys go from image to image, + and − zoom, Enter opens, x selects."),
    element("p", {}, element("label", {}, box, " Listen to keys"), " ", close));
  document.body.append(dialog);
  dialog.showModal();
}
