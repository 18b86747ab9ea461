/* The start: what the index is, and images of it. */

import { href, page } from "./address.js";
import * as api from "./api.js";
import { PAGE, button, cards, element, image, number, pager, withCommands } from "./elements.js";

const FEW = 7;
const LABELS = 12;
const BACKENDS = { exact: "exact", hnsw: "a graph (HNSW)", ivf_pq: "cells (IVF-PQ)", binary: "bits first", milvus: "Milvus", pgvector: "PostgreSQL" };

export async function start(address, { metadata, signal, go }) {
  const seed = Number.parseInt(address.options.seed, 10) || 0;
  const [recent, random, labels] = await Promise.all([
    api.images({ count: FEW }, signal),
    api.images({ order: "random", seed, count: FEW }, signal),
    api.labels("", { count: LABELS }, signal),
  ]);
  const parts = [element("h1", { tabindex: "-1" }, "Find images like yours"), element("p", { class: "small" }, summary(metadata))];
  if (!metadata.images) {
    parts.push(element("p", { class: "notice" }, ...withCommands("The index is empty: `unseen index add INDEX IMAGES` fills it.")));
    return { title: "Start", parts };
  }
  parts.push(
    heading("Recent", "#/recent", "All, newest first"),
    cards(recent.images, "Recent images"),
    heading("Random", href("random", seed), "More of these", button("Shuffle", () => go(href("start", "", { seed: seed + 1 }), "shuffle"), { id: "shuffle" })),
    cards(random.images, "Random images", undefined, FEW),
  );
  if (labels.total) parts.push(heading("Labels", "#/labels", `All ${number.format(labels.total)}`), tiles(labels.labels));
  parts.push(element("h2", {}, "This index"), metadataOf(metadata));
  return { title: "Start", parts };
}

/* Images in pages: #/recent, #/random/SEED, #/label/NAME. */
export async function browse(address, { signal }) {
  const asked = { recent: {}, random: { order: "random", seed: address.what || 0 }, label: { label: address.what } }[address.view];
  const found = await api.images({ ...asked, start: PAGE * (page(address) - 1), count: PAGE }, signal);
  const title = { recent: "Recent images", random: "Random images", label: address.what }[address.view];
  const parts = [
    element("h1", { tabindex: "-1" }, title),
    element("p", { class: "small" }, `${number.format(found.total)} images`),
    cards(found.images, title),
    pager(address, found.total),
  ];
  return { title, parts, images: found.images };
}

export async function labels(address, { signal }) {
  const found = await api.labels(address.what, { start: PAGE * (page(address) - 1), count: PAGE }, signal);
  const title = address.what ? `Labels with “${address.what}”` : "Labels";
  return { title, parts: [element("h1", { tabindex: "-1" }, title), tiles(found.labels), pager(address, found.total)] };
}

function heading(text, target, more, ...others) {
  return element("div", { class: "heading" }, element("h2", {}, text), element("a", { href: target }, more), ...others);
}

function tiles(labels) {
  const tile = ({ name, images, id }) =>
    element("li", { class: "card" }, element("a", { href: href("label", name) }, image(id), element("b", {}, name), " ", element("small", {}, `${number.format(images)} images`)));
  return element("ul", { class: "cards", "aria-label": "Labels" }, ...labels.map(tile));
}

const summary = ({ images, labels, calibration }) =>
  `${number.format(images)} images, ${number.format(labels)} labels, ${calibration ? "calibrated" : "not calibrated"}`;

function metadataOf({ images, labels, labelled, model, search, changed, calibration, uncalibrated }) {
  const percent = (share, digits = 1) => `${(100 * share).toLocaleString("en", { maximumSignificantDigits: digits + 1 })} %`;
  const told = [
    ["Images", `${number.format(images)}${labelled < images ? `, ${number.format(labelled)} with a label` : ""}`],
    ["Labels", number.format(labels)],
    ["Model", `${model.run}: ${model.backbone}, ${model.size} numbers an image`],
    ["Precision", `${model.precision} network`],
    ["Search", search.recall === null || search.recall === 1 ? (BACKENDS[search.backend] ?? search.backend) : `${BACKENDS[search.backend]}, finds ${percent(search.recall, 2)} of the ten nearest`],
    ["Last changed", new Date(changed).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })],
    ["Calibrated", calibration ? `yes: threshold ${calibration.threshold.toFixed(3)}, reached by at most ${percent(calibration.bound)} of wrong pairs` : `no: ${uncalibrated}`],
  ];
  return element("dl", { class: "metadata" }, ...told.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, ...withCommands(value)))));
}
