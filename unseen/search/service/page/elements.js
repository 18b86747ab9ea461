/* Parts of pages. Whatever comes from elsewhere becomes text, never markup. */

import { changed, href, page } from "./address.js";
import { thumbnail } from "./api.js";
import { selection } from "./selected.js";

export const PAGE = 24; // images on a page
export const number = new Intl.NumberFormat("en");

/* A name, attributes (those that begin with "on" are listeners), and what is inside. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/* A sentence whose `commands` stand between backticks. */
export const withCommands = (sentence) => sentence.split("`").map((part, place) => (place % 2 ? element("code", {}, part) : part));

export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

export function image(id, attributes = {}) {
  return element("img", { src: thumbnail(id), alt: "", loading: "lazy", ...attributes });
}

export const named = (item) => item.label ?? item.name;

/* An image that opens large and can be selected. `line`: under its label; `more`: further buttons. */
export function card(item, place, { line = "", name = named(item), title = null, more = [], look = "" } = {}) {
  const open = element(
    "a",
    { href: href("image", item.id), id: `card-${place}`, "aria-label": name, title },
    image(item.id),
    element("b", {}, named(item)),
    " ", // or the two would be read as one word
    line ? element("small", {}, line) : null,
  );
  const chosen = element("input", {
    type: "checkbox",
    "aria-label": `Select ${named(item)}, ${item.name}`,
    title: "Select (x)",
    onchange: () => selection.toggle(item.id),
  });
  chosen.checked = selection.has(item.id);
  return element("li", { class: `card ${look}`, "data-id": item.id }, open, chosen, ...more);
}

/* `options(item, place)`: of each card; `first`: the number of the first one in this view. */
export function cards(images, label, options = () => ({}), first = 0) {
  const made = images.map((each, place) => card(each, first + place, options(each, place)));
  return element("ol", { class: "cards", "aria-label": label }, ...made);
}

/* Links to the pages before and after; nothing where there is one page. */
export function pager(address, total, size = PAGE) {
  const [now, last] = [page(address), Math.ceil(total / size)];
  if (last <= 1) return null;
  const link = (target, text, id) =>
    target < 1 || target > last ? null : element("a", { href: changed(address, { page: target > 1 ? target : null }), id }, text);
  return element(
    "nav",
    { class: "pager", "aria-label": "Pages" },
    link(now - 1, "← Previous", "previous"),
    element("span", {}, `Page ${now} of ${number.format(last)}`),
    link(now + 1, "Next →", "next"),
  );
}
