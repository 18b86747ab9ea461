/* The page: what is asked, what is answered. */

import * as api from "./api.js";
import { Changes } from "./changes.js";
import { Crop } from "./crop.js";
import { EmbeddingMap } from "./map.js";
import { decide, show } from "./results.js";

const find = (id) => document.getElementById(id);
const LARGEST = 1600; // longer sides are scaled down before they are sent
let query = null; // { blob } or { id, name }
let calibration = null;
let running = null;
let labels = [];

const crop = new Crop(find("crop"), () => search());
const map = new EmbeddingMap(find("map-canvas"), find("map-tip"), find("map-status"), (hit) => byHit(hit));
const changes = new Changes(find("changes"), find("changes-link"), (hit) => byHit(hit));

function say(text, failed = false) {
  find("status").textContent = text;
  find("status").className = failed ? "failed" : "";
}

function options() {
  const box = crop.box?.map((share) => share.toFixed(4)).join(",") ?? null;
  return { k: find("count").value, label: find("label").value.trim(), box };
}

async function search() {
  if (!query) return;
  running?.abort();
  running = new AbortController();
  find("whole").hidden = !crop.box;
  say("searching …");
  try {
    const { k, label, box } = options();
    const asked = query.blob
      ? api.byPicture(query.blob, { k, label, box }, running.signal)
      : box
        ? api.byPicture(await picture(query.id), { k, label, box }, running.signal)
        : api.byId(query.id, { k, label }, running.signal);
    const found = await asked;
    say(found.hits.length ? `${found.hits.length} nearest pictures` : "Nothing was found.");
    decide(find("decision"), found.decision, calibration);
    show(find("results"), found.hits, (hit) => byHit(hit));
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.message, true);
    find("decision").hidden = true;
    find("results").replaceChildren();
  }
}

async function picture(id) {
  return (await fetch(api.picture(id))).blob();
}

async function shown(source) {
  crop.show(source);
  find("query").hidden = false;
  find("whole").hidden = true;
}

async function byFile(file) {
  if (!file) return;
  let image;
  try {
    image = await createImageBitmap(file);
  } catch {
    query = null;
    find("query").hidden = true;
    find("results").replaceChildren();
    find("decision").hidden = true;
    say("This is no picture that can be read here: choose a JPEG, PNG, WebP, GIF or BMP file.", true);
    return;
  }
  query = { blob: await reduced(file, image) };
  await shown(image);
  await search();
}

async function reduced(file, image) {
  const scale = LARGEST / Math.max(image.width, image.height);
  if (scale >= 1) return file;
  const canvas = new OffscreenCanvas(Math.round(image.width * scale), Math.round(image.height * scale));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
}

async function byHit(hit) {
  query = { id: hit.id, name: hit.name };
  try {
    await shown(await createImageBitmap(await picture(hit.id)));
  } catch {
    find("query").hidden = true;
  }
  crop.box = null;
  await search();
  find("search-title").scrollIntoView({ block: "start" });
}

function listen() {
  find("file").addEventListener("change", (event) => byFile(event.target.files[0]));
  find("whole").addEventListener("click", () => crop.clear());
  find("label").addEventListener("input", (event) => {
    const name = event.target.value.trim();
    if (!name || labels.includes(name)) search(); // while a name is being typed there is nothing to find
  });
  find("count").addEventListener("change", () => search());
  find("options").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  document.addEventListener("paste", (event) => {
    const item = [...event.clipboardData.items].find((each) => each.type.startsWith("image/"));
    if (item) byFile(item.getAsFile());
    else if (event.target.tagName !== "INPUT") say("What you pasted is no picture.", true);
  });
  const drop = find("drop");
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  document.addEventListener("dragover", () => drop.classList.add("over"));
  document.addEventListener("dragleave", () => drop.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    drop.classList.remove("over");
    byFile(event.dataTransfer.files[0]);
  });
}

async function open() {
  try {
    const facts = await api.facts();
    calibration = facts.calibration;
    labels = Object.keys(facts.labels);
    const told = labels.length ? `, ${labels.length} labels` : "";
    find("facts").textContent = `${facts.pictures.toLocaleString("en")} pictures${told}`;
    find("labels").replaceChildren(
      ...labels.map((name) => Object.assign(document.createElement("option"), { value: name, label: `${name} (${facts.labels[name]})` })),
    );
    if (!facts.pictures) say("The index is empty: `unseen index add INDEX PICTURES` fills it.", true);
    else if (!calibration) say("No probabilities yet: `unseen calibrate RUN` makes them.");
  } catch (error) {
    find("facts").textContent = "";
    say(error.message, true);
  }
}

listen();
await open();
new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && map.load()).observe(find("map"));
changes.load();
