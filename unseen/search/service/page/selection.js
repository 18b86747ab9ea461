/* The selected images (#/selection/1-5,9), and what can be done with all of them. */

import { href, page, unpacked } from "./address.js";
import * as api from "./api.js";
import { PAGE, button, cards, element, number, pager, withCommands } from "./elements.js";
import { labelField } from "./labels.js";
import { selection } from "./selected.js";

const MOST_TOGETHER = 50; // images whose mean is asked for at once

export async function selected(address, { signal, metadata, go, say, refresh }) {
  if (address.what) selection.set(unpacked(address.what));
  const title = "Selection";
  const heading = element("h1", { tabindex: "-1" }, title);
  if (!selection.size) {
    return { title, parts: [heading, element("p", {}, "Nothing is selected: tick images, press x on one, or draw a lasso on the map.")] };
  }
  const nothing = button("Select nothing", () => (selection.set([]), go("#/selection")), { id: "nothing" });
  let found;
  try {
    found = await api.images({ ids: selection.text, start: PAGE * (page(address) - 1), count: PAGE }, signal);
  } catch (error) {
    if (signal.aborted) throw error;
    return { title, parts: [heading, element("p", {}, `Some of these images are not in the index any more (${error.message}).`), nothing] };
  }
  const actions = [
    selection.size <= MOST_TOGETHER ? element("a", { class: "button", href: href("like", selection.text), id: "together" }, "Search by all of them") : null,
    element("a", { class: "button", href: api.exported("csv", selection.text), download: "images.csv", id: "csv" }, "List (CSV)"),
    metadata.may_change ? element("a", { class: "button", href: api.exported("zip", selection.text), download: "images.zip", id: "zip" }, "Files (ZIP)") : null,
    nothing,
  ];
  const parts = [
    heading,
    element("p", {}, `${number.format(selection.size)} images`),
    element("p", { class: "actions" }, ...actions),
    metadata.may_change
      ? changing({ go, say, refresh })
      : element("p", { class: "small" }, ...withCommands("To label or remove images, or to take their files, start `unseen serve` with --token new.")),
    cards(found.images, title),
    pager({ ...address, what: selection.text }, found.total),
  ];
  return { title, parts, images: found.images };
}

function changing({ go, say, refresh }) {
  const field = labelField("give", "Label to give or move to", () => {}, { free: true });
  const removing = button("Remove from the index", () => removal.showModal(), { id: "remove", class: "danger" });
  const removal = element("dialog", { "aria-labelledby": "removal" },
    element("h2", { id: "removal" }, `Remove ${number.format(selection.size)} images from the index?`),
    element("p", {}, "Their files stay where they are."),
    element("p", { class: "actions" }, button("Remove", remove, { class: "danger", id: "really" }), button("Keep", () => removal.close())));

  async function done(change, words) {
    try {
      const { changed } = await change;
      await refresh();
      return `${number.format(changed)} ${words}`;
    } catch (error) {
      say(error.message, true);
      return null;
    }
  }

  async function give() {
    const name = field.querySelector("input").value.trim();
    const text = await done(api.label([...selection.ids], name || null), name ? `images moved to “${name}”` : "images are without a label now");
    if (text) go(name ? href("label", name) : "#/selection", null, text);
  }

  async function remove() {
    removal.close();
    const text = await done(api.remove([...selection.ids]), "images removed");
    if (text === null) return;
    selection.set([]);
    go("#/selection", null, text);
  }

  return element("p", { class: "actions" }, field, button("Give this label", give, { id: "relabel" }), removing, removal);
}
