/* Cards of pictures, nearest first; a click searches on. */

import { thumbnail } from "./api.js";

const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function card(hit, rank, search) {
  const button = element("button", undefined, hit.matched ? "card matched" : "card");
  button.type = "button";
  const image = document.createElement("img");
  image.src = thumbnail(hit.id);
  image.alt = "";
  image.loading = "lazy";
  const said = hit.probability === null ? "" : `, ${percent.format(hit.probability)} same class`;
  button.append(image, element("b", hit.label ?? hit.name), element("span", `similarity ${hit.similarity.toFixed(3)}`));
  if (hit.probability !== null) {
    button.append(element("span", `${percent.format(hit.probability)} same class`));
    button.append(element("span", hit.matched ? "match" : "no match"));
  }
  button.title = hit.name;
  button.dataset.id = hit.id;
  button.setAttribute(
    "aria-label",
    `${rank}: ${hit.label ?? hit.name}, similarity ${hit.similarity.toFixed(3)}${said}. Search by it.`,
  );
  button.addEventListener("click", () => search(hit));
  return button;
}

export function show(list, hits, search) {
  list.replaceChildren(
    ...hits.map((hit, place) => {
      const item = element("li");
      item.append(card(hit, place + 1, search));
      return item;
    }),
  );
}

export function decide(place, decision, calibration) {
  place.hidden = decision === null;
  if (decision === null) return;
  const unknown = decision === "unknown";
  place.replaceChildren(element("b", unknown ? "Unknown" : decision));
  const bound = calibration ? percent.format(calibration.bound) : "";
  const reason = unknown
    ? ": no picture is similar enough to be called the same class."
    : `: the nearest picture is similar enough; at most ${bound} of pairs of different classes are.`;
  place.append(reason);
}

export { element };
