/* Two runs asked the same (#/changes): each changed image with the nearest ones of both. */

import { href, page } from "./address.js";
import * as api from "./api.js";
import { element, image, number, pager } from "./elements.js";

const COUNT = 6;
const SHOWN = 8;

export async function changes(address, { signal }) {
  const found = await api.changes(COUNT * (page(address) - 1), COUNT, signal);
  const title = "What changed";
  const told = `${number.format(found.total)} images are in both indexes. The nearest image is right in the other run alone for ${found.gained} of them, in this run alone for ${found.lost}.`;
  const parts = [
    element("h1", { tabindex: "-1" }, title),
    element("p", { id: "changes-summary" }, told),
    ...(await Promise.all(found.changes.map((change) => changed(change, signal)))),
    pager(address, found.total, COUNT),
  ];
  return { title, parts };
}

async function changed(change, signal) {
  const [before, after] = await Promise.all([
    api.byIds(change.id, { k: SHOWN }, signal),
    api.otherById(change.other_id, { k: SHOWN }, signal),
  ]);
  const label = change.right ? before.hits[0]?.label : change.other_right ? after.hits[0]?.label : null;
  return element("article", { class: "change" },
    element("a", { href: href("image", change.id), "aria-label": "Open the image" }, image(change.id)),
    element("div", {}, row("this", before.hits, label, ""), row("other", after.hits, label, "/other"),
      element("small", {}, `${change.shared} of the 10 nearest are the same`)));
}

function row(title, hits, label, prefix) {
  const name = (hit) => hit.label ?? hit.name;
  const images = hits.map((hit) =>
    image(hit.id, {
      src: api.thumbnail(hit.id, prefix),
      alt: name(hit),
      title: `${name(hit)}, ${hit.similarity.toFixed(3)}`,
      class: label === null || label === undefined ? null : hit.label === label ? "right" : "wrong",
    }),
  );
  return element("div", { class: "row" }, element("span", {}, title), ...images);
}
