/* What a search is narrowed to: a label, and an expression over the columns of the index. Each stands
   below the fields as a chip that takes it away. */

import { changed } from "./address.js";
import { element } from "./elements.js";

export function filterField(address, go) {
  const input = element("input", {
    id: "where", value: address.options.where ?? "", placeholder: "price < 20 and brand = 'x'",
    "aria-label": "Only where", maxlength: "1000", spellcheck: "false", autocomplete: "off",
  });
  const search = (event) => (event.preventDefault(), go(changed(address, { where: input.value.trim() }), "where"));
  return element("form", { class: "where", onsubmit: search }, element("label", { for: "where" }, "Only where"), input);
}

export function chips(address) {
  const { label, where } = address.options;
  const chip = (name, text) => element("li", {}, element("a", { class: "chip", href: changed(address, { [name]: null }), "aria-label": `Without ${text}` }, text, " ✕"));
  const shown = [label ? chip("label", label) : null, where ? chip("where", where) : null].filter(Boolean);
  return shown.length ? element("ul", { class: "chips", "aria-label": "Filters" }, ...shown) : null;
}

/* brand = 'x' */
export function condition(name, value) {
  const column = /^[a-z_][a-z0-9_]*$/i.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  return `${column} = ${typeof value === "number" ? value : `'${value.replaceAll("'", "''")}'`}`;
}
