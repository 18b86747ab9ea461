/* Two runs asked the same: each changed picture with the nearest ones of both. */

import * as api from "./api.js";
import { element } from "./results.js";

const COUNT = 12;
const SHOWN = 8;

function row(title, hits, label, prefix) {
  const line = element("div", undefined, "row");
  line.append(element("span", title));
  for (const hit of hits) {
    const image = document.createElement("img");
    image.src = api.thumbnail(hit.id, prefix);
    image.alt = hit.label ?? hit.name;
    image.title = `${hit.label ?? hit.name}, ${hit.similarity.toFixed(3)}`;
    image.loading = "lazy";
    if (label !== null) image.className = hit.label === label ? "right" : "wrong";
    line.append(image);
  }
  return line;
}

async function changed(change, search) {
  const [before, after] = await Promise.all([
    api.byId(change.id, { k: SHOWN }),
    api.otherById(change.other_id, { k: SHOWN }),
  ]);
  const block = element("article", undefined, "change");
  const button = element("button");
  button.type = "button";
  const image = document.createElement("img");
  image.src = api.thumbnail(change.id);
  image.alt = "search by this picture";
  button.append(image);
  button.addEventListener("click", () => search({ id: change.id, label: null, name: "a changed picture" }));
  const label = labelOf(change, before, after);
  const lists = element("div");
  lists.append(row("this", before.hits, label, ""), row("other", after.hits, label, "/other"));
  lists.append(element("small", `${change.shared} of the 10 nearest are the same`));
  block.append(button, lists);
  return block;
}

function labelOf(change, before, after) {
  if (change.right) return before.hits[0]?.label ?? null;
  if (change.other_right) return after.hits[0]?.label ?? null;
  return null;
}

export class Changes {
  constructor(section, link, search) {
    this.section = section;
    this.link = link;
    this.search = search;
    this.start = 0;
    section.querySelector("#changes-more").addEventListener("click", () => this.more());
  }

  async load() {
    try {
      const found = await api.changes(0, 1);
      this.section.hidden = this.link.hidden = false;
      const told = `${found.total} pictures are in both indexes. The nearest picture is right in the other run alone for ${found.gained} of them, in this run alone for ${found.lost}.`;
      this.section.querySelector("#changes-summary").textContent = told;
      await this.more();
    } catch {
      this.section.hidden = this.link.hidden = true; // one index only
    }
  }

  async more() {
    const found = await api.changes(this.start, COUNT);
    const list = this.section.querySelector("#changes-list");
    list.append(...(await Promise.all(found.changes.map((change) => changed(change, this.search)))));
    this.start += found.changes.length;
    this.section.querySelector("#changes-more").hidden = this.start >= found.total;
  }
}
