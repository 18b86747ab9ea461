/* A field that finds labels while one types, as a combobox: arrow keys, Enter, Escape. */

import * as api from "./api.js";
import { element, number } from "./elements.js";

const SHOWN = 8;
const PAUSE = 120; // milliseconds without a key

/* choose(name, known): a label of the list, or what was typed; "" when the field was emptied. With `free`
   Enter takes what was typed, otherwise the first label that was found. */
export function labelField(id, title, choose, { value = "", free = false } = {}) {
  const list = element("ul", { id: `${id}-list`, role: "listbox", "aria-label": title, hidden: true });
  const input = element("input", {
    id,
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: title,
    "aria-label": title,
    "aria-controls": list.id,
    "aria-expanded": "false",
    "aria-autocomplete": "list",
    value,
  });
  let [waiting, asking, active] = [0, null, -1];

  function close() {
    clearTimeout(waiting);
    asking?.abort();
    list.hidden = true;
    active = -1;
    list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function take(name, known = true) {
    input.value = name;
    close();
    choose(name, known);
  }

  function mark(place) {
    active = (place + list.children.length) % list.children.length;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", at === active));
    input.setAttribute("aria-activedescendant", list.children[active].id);
  }

  async function look() {
    asking?.abort();
    asking = new AbortController();
    let found;
    try {
      found = (await api.labels(input.value.trim(), { count: SHOWN }, asking.signal)).labels;
    } catch {
      return; // a later key asks again
    }
    active = -1;
    const options = found.map((label, place) =>
      element(
        "li",
        { id: `${id}-${place}`, role: "option", "aria-selected": "false", "data-name": label.name, onpointerdown: (event) => (event.preventDefault(), take(label.name)) },
        `${label.name} (${number.format(label.images)})`,
      ),
    );
    list.replaceChildren(...options);
    list.hidden = !options.length;
    input.setAttribute("aria-expanded", String(options.length > 0));
  }

  function key(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (list.hidden) look();
      else mark(active < 0 ? (event.key === "ArrowDown" ? 0 : -1) : active + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter") {
      const first = list.children[active] ?? (free ? null : list.children[0]);
      take(first?.dataset.name ?? input.value.trim(), Boolean(first));
    } else if (event.key === "Escape" && !list.hidden) close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  input.addEventListener("input", () => {
    clearTimeout(waiting);
    if (!input.value && !free) take("");
    else waiting = setTimeout(look, PAUSE);
  });
  input.addEventListener("keydown", key);
  input.addEventListener("blur", close);
  return element("div", { class: "combobox" }, input, list);
}
