/* What was found: by images of the index (#/like/12,15) or by images that were brought (#/upload/1). */

import { changed, href, page, unpacked } from "./address.js";
import * as api from "./api.js";
import { Crop } from "./crop.js";
import { PAGE, button, cards, element, image, named, pager, withCommands } from "./elements.js";
import { chips, filterField } from "./filters.js";
import { labelField } from "./labels.js";
import * as uploads from "./uploads.js";
import { whyButton } from "./why.js";

const MOST_LABELS = 5; // that are named
const FRAMES = { match: "match", maybe: "maybe" };

export async function results(address, { signal, go, metadata }) {
  const { label, where, box, right = "", wrong = "" } = address.options;
  const brought = address.view === "upload" ? uploads.find(address.what) : null;
  if (address.view === "upload" && !brought) throw new Error("This image was brought in another window, and not kept: choose it again.");
  const options = { label, where, box, right, wrong, start: PAGE * (page(address) - 1), k: PAGE };
  const found = await (brought
    ? api.byImages(brought.map((each) => each.blob), options, signal)
    : api.byIds(address.what, options, signal));
  const several = brought ? brought.length > 1 : unpacked(address.what).length > 1;
  const title = several ? "Images like these" : "Images like this one";
  const call = (name, hit, place) => go(changed(address, { [name]: [...unpacked(address.options[name] ?? ""), hit.id].join(",") }), `card-${place}`);
  const why = (id) => (brought ? api.whyByImage(id, brought[0].blob, box) : api.whyById(id, address.what, box));
  const more = (hit, place) => [...called(hit, place, call, right), ...(several ? [] : [whyButton(hit, why)])];
  const shown = (hit, place) => ({ ...told(hit, options.start + place + 1), more: more(hit, place) });
  const asked = await query(address, brought, several, go);
  const parts = [
    element("h1", { tabindex: "-1" }, title),
    element("div", { class: "asked" }, asked, element("div", { class: "narrow" },
      labelField("only", "Only with label", (name) => go(changed(address, { label: name }), "only"), { value: label ?? "" }),
      filterField(address, go), chips(address),
      feedback(address, right, wrong), decision(address, found, metadata, several || right || wrong))),
    found.hits.length ? cards(found.hits, "Nearest images", shown) : element("p", {}, "Nothing was found."),
    pager(address, found.total),
  ];
  return { title, parts, images: found.hits, status: `${found.hits.length} nearest images` };
}

function told(hit, rank) {
  const line = `${hit.conclusion ? `${hit.conclusion} · ` : ""}${hit.similarity.toFixed(3)}`;
  const name = `${named(hit)} ${line}, number ${rank}. ${hit.reason ?? ""}`; // begins with what is seen
  return { line, name, title: hit.reason ?? hit.name, look: FRAMES[hit.conclusion] ?? "" };
}

function called(hit, place, call, right) {
  const is = unpacked(right).includes(hit.id);
  return [
    button("✓", () => call("right", hit, place), { "aria-label": `Right: more like ${named(hit)}, ${hit.name}`, title: "Right, more like it (y)", "aria-pressed": String(is), disabled: is, "data-call": "right" }),
    button("✗", () => call("wrong", hit, place), { "aria-label": `Not this one: ${named(hit)}, ${hit.name}`, title: "Not this one (n)", "data-call": "wrong" }),
  ];
}

/* One image, on which a box can be drawn, or all that ask together. */
async function query(address, brought, several, go) {
  if (several) {
    const images = brought ? brought.map(drawn) : unpacked(address.what).slice(0, 8).map((id) => image(id));
    return element("div", { class: "together" }, ...images);
  }
  const canvas = element("canvas", { id: "crop", tabindex: "0", role: "img",
    "aria-label": "Your image. Drag to choose a region, or use the arrow keys to move it and shift with the arrow keys to size it; Enter searches, Escape takes the whole image." });
  const crop = new Crop(canvas, (box) => go(changed(address, { box: box?.map((share) => share.toFixed(4)).join(",") ?? null }), "crop"));
  const bitmap = brought ? brought[0].bitmap : await createImageBitmap(await (await fetch(api.image(address.what))).blob());
  crop.show(bitmap, address.options.box?.split(",").map(Number) ?? null);
  const whole = address.options.box ? element("a", { href: changed(address, { box: null }), id: "whole" }, "Whole image") : null;
  return element("div", { class: "query" }, canvas, element("p", { class: "small" }, "Drag over a part to search by it. ", whole));
}

function drawn({ bitmap }) {
  const canvas = element("canvas", { role: "img", "aria-label": "An image of yours" });
  canvas.height = 96;
  canvas.width = Math.max(1, Math.round((96 * bitmap.width) / bitmap.height));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas;
}

function feedback(address, right, wrong) {
  const counts = [[unpacked(right).length, "right"], [unpacked(wrong).length, "wrong"]].filter(([count]) => count);
  if (!counts.length) return null;
  const text = `${counts.map(([count, word]) => `${count} called ${word}`).join(", ")}: the search has moved. `;
  return element("p", { id: "called" }, text, element("a", { href: changed(address, { right: null, wrong: null }) }, "Forget"));
}

/* The conclusion on the nearest image, in the same words as under it. */
function decision(address, found, { calibration, uncalibrated }, moved) {
  const [first] = found.hits;
  if (calibration === null) return element("p", { class: "small" }, ...withCommands(`No conclusions: ${uncalibrated}.`));
  if (moved) return element("p", { class: "small" }, "No conclusions: they hold for one image as it is.");
  if (!first || page(address) > 1) return null;
  const [name, text] = {
    match: [first.label ?? "An image without a label", ": the nearest image is a match."],
    maybe: [`Perhaps ${named(first)}`, ": the nearest image is a maybe."],
    "no match": ["Unknown", ": no image is near enough to be called the same class."],
    compatible: ["No conclusion", ": the vector of the nearest image comes from an older model."],
  }[first.conclusion];
  if (found.decision === "several labels") {
    const labels = found.labels.length > MOST_LABELS ? [...found.labels.slice(0, MOST_LABELS), "..."] : found.labels;
    const which = `: ${labels.join(", ")}. Look at the images, or search by a part.`;
    return element("p", { class: "decision", id: "decision" }, element("b", {}, "Several labels match"), which);
  }
  return element("p", { class: "decision", id: "decision", title: first.reason }, element("b", {}, name), text);
}
