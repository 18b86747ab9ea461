/* The page: one view at a time, chosen by the address; what is brought, dropped, pasted or typed. */

import { href, parse } from "./address.js";
import * as api from "./api.js";
import { changes } from "./changes.js";
import { element, number } from "./elements.js";
import { help, listens } from "./help.js";
import { labelField } from "./labels.js";
import { map } from "./map.js";
import { image } from "./image.js";
import { results } from "./results.js";
import { selection } from "./selected.js";
import { selected } from "./selection.js";
import { browse, labels, start } from "./start.js";
import { keep } from "./uploads.js";

const VIEWS = { start, recent: browse, random: browse, label: browse, labels, like: results, upload: results, image, map, selection: selected, changes };
const find = (id) => document.getElementById(id);
const place = find("view");
let metadata = null;
let list = []; // the images shown last
let showing = null;

function say(text, failed = false) {
  find("status").textContent = text;
  find("status").className = failed ? "failed" : "";
}

/* To another view; the focus then goes to `focus`, or to the heading. */
function go(target, focus = null, text = "") {
  if (target === location.hash) history.replaceState({ focus }, "", target);
  else history.pushState({ focus }, "", target);
  show(text);
}

async function show(text = "") {
  showing?.abort();
  showing = new AbortController();
  const { signal } = showing;
  const address = parse();
  place.setAttribute("aria-busy", "true");
  say(text || "loading …");
  try {
    const view = VIEWS[address.view];
    if (!view) throw new Error("There is no such view.");
    metadata ??= await opened();
    const made = await view(address, { signal, metadata, list, go, say, refresh });
    if (signal.aborted) return;
    if (made.images) list = made.images;
    fill(made.title, made.parts);
    made.ready?.(signal);
    say(text || made.status || "");
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    fill("Unseen search", [element("h1", { tabindex: "-1" }, "This did not work")]);
    say(error.message, true);
  }
}

function fill(title, parts) {
  place.removeAttribute("aria-busy");
  const first = !place.childElementCount;
  document.title = title === "Start" ? "Unseen search" : `${title} · Unseen search`;
  place.replaceChildren(...parts.filter(Boolean));
  const { focus, top } = history.state ?? {};
  const target = (focus && find(focus)) || place.querySelector("h1");
  if (!first) target.focus({ preventScroll: true });
  if (focus && top === undefined) target.scrollIntoView({ block: "nearest" });
  else window.scrollTo(0, top ?? 0);
}

async function opened() {
  const found = await api.metadata();
  find("changes-link").hidden = !found.compares;
  return found;
}

async function refresh() {
  metadata = await opened();
}

async function bring(files) {
  const images = [...files];
  if (!images.length) return;
  say("reading …");
  try {
    go(href("upload", await keep(images)));
  } catch (error) {
    say(error.message, true);
  }
}

function count() {
  const link = find("selection-link");
  link.textContent = selection.size ? `Selection (${number.format(selection.size)})` : "Selection";
  link.href = href("selection", selection.text);
}

/* Where the page stood, for whoever comes back. */
function leave(event) {
  const link = event.target.closest("a[href^='#/']");
  if (link) history.replaceState({ focus: link.id, top: window.scrollY }, "");
}

function step(card, key) {
  const cards = [...place.querySelectorAll(".card > a")];
  const at = cards.indexOf(card);
  const columns = cards.filter((each) => each.offsetTop === cards[0].offsetTop).length;
  const next = cards[at + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key]];
  next?.focus();
  return next;
}

function key(event) {
  const inside = event.target.closest("input:not([type=checkbox]):not([type=file]), textarea, select, dialog");
  if (inside || event.ctrlKey || event.metaKey || event.altKey || !listens()) return;
  const card = event.target.closest(".card");
  const click = (target) => (target?.click(), target);
  const ways = {
    "/": () => find("label").focus() ?? true,
    o: () => click(find("file")),
    h: () => go("#/") ?? true,
    m: () => go("#/map") ?? true,
    s: () => click(find("selection-link")),
    "?": () => help() ?? true,
    l: () => (card?.dataset.id ? (go(href("like", card.dataset.id)), true) : click(find("like"))),
    x: () => click((card ?? place.querySelector(".large"))?.querySelector("input[type=checkbox]")),
    y: () => click(card?.querySelector("[data-call=right]")),
    n: () => click(card?.querySelector("[data-call=wrong]")),
    "[": () => click(find("previous")),
    "]": () => click(find("next")),
    Escape: () => (location.hash.length > 2 ? (history.back(), true) : null),
  };
  const arrow = event.key.startsWith("Arrow") && card;
  if (arrow ? step(card.querySelector("a"), event.key) : ways[event.key]?.()) event.preventDefault();
}

function listen() {
  for (const id of ["file", "camera"]) {
    find(id).addEventListener("change", (event) => {
      bring(event.target.files);
      event.target.value = ""; // the same one again is a change too
    });
  }
  document.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
    if (files.length) bring(files);
    else if (event.target.tagName !== "INPUT") say("What you pasted is no image.", true);
  });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
  document.addEventListener("dragover", () => document.body.classList.add("over"));
  document.addEventListener("dragleave", () => document.body.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    document.body.classList.remove("over");
    bring(event.dataTransfer.files);
  });
  document.addEventListener("click", leave, true);
  document.addEventListener("keydown", key);
  find("help").addEventListener("click", help);
  find("skip").addEventListener("click", (event) => (event.preventDefault(), place.focus()));
  find("ask").append(labelField("label", "Find a label", (name, known) => name && go(href(known ? "label" : "labels", name))));
  selection.addEventListener("change", count);
  window.addEventListener("popstate", () => show()); // links to # are told here too
}

listen();
count();
await show();
