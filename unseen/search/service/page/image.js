/* One image, large, with what is known of it. */

import { href } from "./address.js";
import * as api from "./api.js";
import { element, named, number } from "./elements.js";
import { condition } from "./filters.js";
import { selection } from "./selected.js";

/* `list`: the images it was opened from, for the one before and after. */
export async function image(address, { signal, list }) {
  const id = Number(address.what);
  const metadata = await api.metadataOf(id, signal);
  const place = list.findIndex((each) => each.id === id);
  const found = list[place];
  const title = named(metadata);
  const chosen = element("input", { type: "checkbox", onchange: () => selection.toggle(id) });
  chosen.checked = selection.has(id);
  const link = (other, text, key) => (other ? element("a", { href: href("image", other.id), id: key }, text) : null);
  const parts = [
    element("h1", { tabindex: "-1" }, title),
    element("div", { class: "large" },
      element("img", { src: api.image(id), alt: `${title}, ${metadata.name}` }),
      element("div", {},
        element("p", { class: "actions" },
          element("a", { class: "button", href: href("like", id), id: "like" }, "More like this"),
          metadata.label === null ? null : element("a", { class: "button", href: href("label", metadata.label), id: "same" }, "Same label"),
          element("label", { class: "button" }, chosen, "Selected")),
        known(metadata, found),
        columns(metadata),
        element("p", { class: "pager" }, link(list[place - 1], "← Previous", "previous"), place >= 0 ? link(list[place + 1], "Next →", "next") : null))),
  ];
  return { title, parts };
}

/* Each finds images like this one that have the same. */
function columns({ id, columns }) {
  const told = Object.entries(columns);
  if (!told.length) return null;
  const chip = ([name, value]) =>
    element("li", {}, element("a", { class: "chip", href: href("like", id, { where: condition(name, value) }) }, `${name}: ${value}`));
  return element("ul", { class: "chips", "aria-label": "More like this with the same" }, ...told.map(chip));
}

function known(metadata, found) {
  const told = [
    ["Label", metadata.label ?? "none"],
    ["Images with this label", metadata.same_label === null ? null : number.format(metadata.same_label)],
    ["File", metadata.name],
    ["Size of the file", `${number.format(Math.ceil(metadata.num_bytes / 1000))} kB`],
    ["Part of it", metadata.box === null ? null : `${metadata.box[0]}, ${metadata.box[1]} to ${metadata.box[2]}, ${metadata.box[3]}`],
    ["File changed", new Date(metadata.modified).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })],
    ["Id", metadata.id],
    ["Similarity", found?.similarity === undefined ? null : found.similarity.toFixed(3)],
    ["Conclusion", found?.conclusion ? `${found.conclusion}. ${found.reason}` : null],
  ].filter(([, value]) => value !== null);
  return element("dl", { class: "metadata" }, ...told.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
}
