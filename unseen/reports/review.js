// Decides on label issues one by one, by key or by click. Decisions stay in this browser (localStorage) until the
// table is downloaded; nothing is sent or loaded.
"use strict";

const data = JSON.parse(document.getElementById("review-data").textContent);
const { label_issues: labelIssues, classes } = data;
const store = `unseen-labels-${data.key}`;
const decisions = new Map(stored()); // item -> class number, or null: dropped
const $ = (id) => document.getElementById(id);
let place = Math.max(0, labelIssues.findIndex(({ item }) => !decisions.has(item)));

function stored() {
  try {
    return JSON.parse(localStorage.getItem(store)) ?? [];
  } catch {
    return []; // a browser that keeps nothing for files
  }
}

function keep() {
  try {
    localStorage.setItem(store, JSON.stringify([...decisions]));
  } catch {
    // decided all the same, until the page is closed
  }
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function kind(labelIssue) {
  if (!decisions.has(labelIssue.item)) return "";
  const to = decisions.get(labelIssue.item);
  return to === null ? "drop" : to === labelIssue.label ? "keep" : "move";
}

// ---- one label issue ----

function choice(key, what, detail, examples, to) {
  const labelIssue = labelIssues[place];
  const chosen = decisions.has(labelIssue.item) && decisions.get(labelIssue.item) === to;
  const images = examples.map((item) => element("img", { src: data.small[item], alt: "", decoding: "async" }));
  const made = element(
    "button",
    { type: "button", className: `choice${to === null ? " drop" : ""}${chosen ? " chosen" : ""}`, onclick: () => decide(to) },
    element("kbd", { textContent: key }),
    element("span", { className: "what" }, element("bdi", { textContent: what }), element("small", { textContent: detail })),
    element("span", { className: "examples" }, ...images),
  );
  made.setAttribute("aria-pressed", chosen);
  return made;
}

function otherClass() {
  const labelIssue = labelIssues[place];
  const to = decisions.get(labelIssue.item);
  const isOther = to !== undefined && to !== null && ![labelIssue.label, ...labelIssue.suggested].includes(to);
  const input = element("input", { id: "other", placeholder: "another class …", value: isOther ? classes[to] : "" });
  input.setAttribute("list", "classes");
  input.setAttribute("aria-label", "Move to another class");
  const take = () => {
    const found = classes.indexOf(input.value.trim());
    input.setCustomValidity(found < 0 ? "There is no class of this name." : "");
    if (found < 0) input.reportValidity();
    else decide(found);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") take();
    if (event.key === "Escape") input.blur();
  });
  const row = element("label", { className: `choice${isOther ? " chosen" : ""}` }, element("kbd", { textContent: "c" }), input);
  row.append(element("span", { className: "examples" }));
  return row;
}

function show() {
  const labelIssue = labelIssues[place];
  $("image").src = labelIssue.image;
  $("image").alt = `labelled ${classes[labelIssue.label]}`;
  $("name").textContent = labelIssue.name;
  $("why").textContent = `number ${place + 1} · issue score ${labelIssue.issue_score.toFixed(2)}`;
  const moves = labelIssue.suggested.map((to, number) =>
    choice(String(number + 1), classes[to], number ? "or to this class" : "move to this class", labelIssue.near[number], to));
  $("choices").replaceChildren(
    choice("k", classes[labelIssue.label], "keep the label", labelIssue.own, labelIssue.label),
    ...moves,
    otherClass(),
    choice("d", "drop the image", "it stays on the disk, and out of the table", [], null),
  );
  [...$("strip").children].forEach((button, number) => {
    button.className = kind(labelIssues[number]);
    button.toggleAttribute("aria-current", number === place);
  });
  const kinds = labelIssues.map(kind);
  const count = (one) => kinds.filter((each) => each === one).length;
  $("progress").textContent =
    `${labelIssues.length - count("")} of ${labelIssues.length} decided: ${count("keep")} kept, ${count("move")} moved, ${count("drop")} dropped`;
}

function go(step) {
  place = Math.min(labelIssues.length - 1, Math.max(0, place + step));
  show();
}

function decide(to) {
  decisions.set(labelIssues[place].item, to);
  keep();
  go(1);
}

function forget() {
  decisions.delete(labelIssues[place].item);
  keep();
  show();
}

// ---- the table ----

// A spreadsheet computes what begins so; the reader of tables takes the ' away again.
function cell(text) {
  const safe = /^'*[=+\-@\t\r\n＝＋－＠]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv(rows) {
  return rows.map((row) => `${row.map((text) => cell(String(text))).join(",")}\n`).join("");
}

// Every row with its label as decided. Who moves to a class of another part of the split moves to that part.
function table() {
  const { names, rows } = data.table; // a row for each item, in their order
  const label = names.indexOf("label");
  const parts = ["split", "is_query", "is_gallery"].map((name) => names.indexOf(name)).filter((column) => column >= 0);
  const first = new Map();
  rows.forEach((row) => first.has(row[label]) || first.set(row[label], row));
  const done = rows.flatMap((row, number) => {
    const to = decisions.get(number);
    if (to === undefined) return [row];
    if (to === null) return [];
    const moved = [...row];
    const there = first.get(classes[to]);
    moved[label] = classes[to];
    if (there && classes[to] !== row[label]) parts.forEach((column) => { moved[column] = there[column]; });
    return [moved];
  });
  return csv([names, ...done]);
}

function decided() {
  const words = { keep: "keep", move: "move", drop: "drop", "": "" };
  const rows = labelIssues.map((labelIssue) => {
    const to = decisions.get(labelIssue.item) ?? labelIssue.label;
    return [labelIssue.name, classes[labelIssue.label], words[kind(labelIssue)], classes[to]];
  });
  return csv([["item", "label", "decision", "new_label"], ...rows]);
}

function download() {
  const text = data.table ? table() : decided();
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = element("a", { href: address, download: data.file });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// ---- keys ----

const KEYS = {
  k: () => decide(labelIssues[place].label),
  d: () => decide(null),
  u: forget,
  c: () => $("other").focus(),
  s: download,
  ArrowLeft: () => go(-1),
  ArrowRight: () => go(1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.id === "other") return;
  const suggested = labelIssues[place].suggested[Number(event.key) - 1];
  if (suggested !== undefined) decide(suggested);
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
  else return;
  event.preventDefault(); // the c is no letter of the class
});

document.body.append(element("datalist", { id: "classes" }, ...classes.map((name) => element("option", { value: name }))));
labelIssues.forEach((labelIssue, number) => {
  const image = element("img", { src: data.small[labelIssue.item], alt: "", loading: "lazy" });
  const button = element("button", { type: "button", onclick: () => go(number - place) }, image);
  button.setAttribute("aria-label", `Label issue ${number + 1}`);
  $("strip").append(button);
});
$("download").addEventListener("click", download);
show();
document.documentElement.dataset.drawn = "yes";
