/* One picture, large, with what is known of it. */

import { href } from "./address.js";
import * as api from "./api.js";
import { element, named, number } from "./elements.js";
import { selection } from "./selected.js";

/* `list`: the pictures it was opened from, for the one before and after. */
export async function picture(address, { signal, list }) {
  const id = Number(address.what);
  const facts = await api.factsOf(id, signal);
  const place = list.findIndex((each) => each.id === id);
  const found = list[place];
  const title = named(facts);
  const chosen = element("input", { type: "checkbox", onchange: () => selection.toggle(id) });
  chosen.checked = selection.has(id);
  const link = (other, text, key) => (other ? element("a", { href: href("picture", other.id), id: key }, text) : null);
  const parts = [
    element("h1", { tabindex: "-1" }, title),
    element("div", { class: "large" },
      element("img", { src: api.picture(id), alt: `${title}, ${facts.name}` }),
      element("div", {},
        element("p", { class: "actions" },
          element("a", { class: "button", href: href("like", id), id: "like" }, "More like this"),
          facts.label === null ? null : element("a", { class: "button", href: href("label", facts.label), id: "same" }, "Same label"),
          element("label", { class: "button" }, chosen, "Selected")),
        known(facts, found),
        element("p", { class: "pager" }, link(list[place - 1], "← Previous", "previous"), place >= 0 ? link(list[place + 1], "Next →", "next") : null))),
  ];
  return { title, parts };
}

function known(facts, found) {
  const told = [
    ["Label", facts.label ?? "none"],
    ["Pictures with this label", facts.same_label === null ? null : number.format(facts.same_label)],
    ["File", facts.name],
    ["Size of the file", `${number.format(Math.ceil(facts.num_bytes / 1000))} kB`],
    ["Part of it", facts.box === null ? null : `${facts.box[0]}, ${facts.box[1]} to ${facts.box[2]}, ${facts.box[3]}`],
    ["File changed", new Date(facts.modified).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })],
    ["Id", facts.id],
    ["Similarity", found?.similarity === undefined ? null : found.similarity.toFixed(3)],
    ["Verdict", found?.verdict ? `${found.verdict}. ${found.reason}` : null],
  ].filter(([, value]) => value !== null);
  return element("dl", { class: "facts" }, ...told.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, String(value)))));
}
