/* The map of the index (#/map): points on a canvas, a legend, zoom, thumbnails when near, a lasso. */

import { href } from "./address.js";
import * as api from "./api.js";
import { button, element, number } from "./elements.js";
import { selection } from "./selected.js";

const NEAR = 46; // pixels a thumbnail takes
const MOST_THUMBNAILS = 260;
const IN_LEGEND = 12;
const FAINT = 0.12;
const GREY = "#888888"; // without a label

export async function map(address, { signal, go, say }) {
  const title = "Map";
  say("drawing the map …");
  const data = await api.map(signal);
  const heading = element("h1", { tabindex: "-1" }, title);
  if (!data.ids.length) {
    const text = data.status === "cannot be drawn" ? "The map cannot be drawn." : "There are too few images for a map.";
    return { title, parts: [heading, element("p", {}, text)] };
  }
  const canvas = element("canvas", { id: "map-canvas", tabindex: "0", role: "application",
    "aria-label": `Map of ${data.ids.length} images. Arrow keys go from image to image, + and - zoom, Enter opens, x selects.` });
  const tip = element("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const drawn = new EmbeddingMap(canvas, tip, data, { address, go, say });
  const lasso = button("Lasso", () => lasso.setAttribute("aria-pressed", String((drawn.lassoing = !drawn.lassoing))), { id: "lasso", "aria-pressed": "false" });
  const parts = [
    heading,
    element("p", { class: "small" }, "Images that the network finds alike lie together. Click one to open it, scroll to zoom, drag to move; the lasso, or dragging with shift, selects."),
    element("p", { class: "actions" }, lasso, button("+", () => drawn.zoom(1.4), { "aria-label": "Zoom in" }), button("−", () => drawn.zoom(1 / 1.4), { "aria-label": "Zoom out" }), button("Whole map", () => drawn.look(0, 0, 1))),
    element("div", { class: "chart" }, canvas, tip),
    legend(data, drawn),
  ];
  return { title, parts, ready: (until) => drawn.begin_drawing(until) };
}

function legend(data, drawn) {
  const counts = new Map();
  for (const one of data.classOf) if (one >= 0) counts.set(one, (counts.get(one) ?? 0) + 1);
  const shown = [...counts].sort((a, b) => b[1] - a[1]).slice(0, IN_LEGEND);
  const chosen = data.names.indexOf(drawn.label);
  if (chosen >= 0 && !shown.some(([one]) => one === chosen)) shown.unshift([chosen, counts.get(chosen) ?? 0]);
  const entry = ([one, count]) => {
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = data.colors[one];
    const name = data.names[one];
    const made = button("", () => drawn.highlight(drawn.label === name ? null : name), { "aria-pressed": String(drawn.label === name), "data-label": name });
    made.append(swatch, `${name} (${number.format(count)})`);
    return element("li", {}, made);
  };
  const rest = counts.size - shown.length;
  return element("ul", { class: "legend", "aria-label": "Labels on the map" }, ...shown.map(entry), rest > 0 ? element("li", {}, `and ${number.format(rest)} more`) : null);
}

class EmbeddingMap {
  constructor(canvas, tip, data, { address, go, say }) {
    Object.assign(this, { canvas, tip, data, go, say, chosen: -1, images: new Map(), lassoing: false, path: null });
    const [x = 0, y = 0, zoom = 1] = (address.options.at ?? "").split(",").filter(Boolean).map(Number);
    this.view = [x, y, zoom].every(Number.isFinite) && zoom > 0 ? { x, y, zoom } : { x: 0, y: 0, zoom: 1 };
    this.label = address.options.label ?? null;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  begin_drawing(signal) {
    const watch = new ResizeObserver(() => this.draw());
    watch.observe(this.canvas);
    const again = () => this.draw();
    selection.addEventListener("change", again, { signal });
    signal.addEventListener("abort", () => watch.disconnect());
    this.draw();
  }

  /* The address follows what is looked at. */
  note() {
    const { x, y, zoom } = this.view;
    const at = zoom === 1 && !x && !y ? null : [x, y, zoom].map((value) => value.toFixed(3)).join(",");
    history.replaceState(history.state, "", href("map", "", { label: this.label, at }));
  }

  look(x, y, zoom) {
    this.view = { x, y, zoom };
    this.note();
    this.draw();
  }

  highlight(label) {
    this.label = label;
    for (const each of document.querySelectorAll(".legend button")) each.setAttribute("aria-pressed", String(each.dataset.label === label));
    this.note();
    this.draw();
  }

  get scale() {
    return (Math.min(this.canvas.clientWidth, this.canvas.clientHeight) / 2.1) * this.view.zoom;
  }

  place(point) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    return [width / 2 + (this.data.x[point] - this.view.x) * this.scale, height / 2 + (this.data.y[point] - this.view.y) * this.scale];
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    const dense = window.devicePixelRatio || 1;
    this.canvas.width = width * dense;
    this.canvas.height = height * dense;
    const context = this.canvas.getContext("2d");
    context.scale(dense, dense);
    const seen = [];
    for (let point = 0; point < this.data.ids.length; point += 1) {
      const [x, y] = this.place(point);
      if (x > -NEAR && y > -NEAR && x < width + NEAR && y < height + NEAR) seen.push([point, x, y]);
    }
    const images = seen.length <= MOST_THUMBNAILS;
    for (const [point, x, y] of seen) this.mark(context, point, x, y, images);
    context.globalAlpha = 1;
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.lineWidth = 3;
    if (this.chosen >= 0) {
      const [x, y] = this.place(this.chosen);
      context.strokeRect(x - NEAR / 2, y - NEAR / 2, NEAR, NEAR);
    }
    if (this.path) {
      context.lineWidth = 2;
      context.setLineDash([5, 4]);
      context.beginPath();
      for (const [x, y] of this.path) context.lineTo(x, y);
      context.closePath();
      context.stroke();
    }
  }

  mark(context, point, x, y, images) {
    const name = this.data.names[this.data.classOf[point]] ?? null;
    const color = this.data.colors[this.data.classOf[point]] ?? GREY;
    const chosen = selection.has(this.data.ids[point]);
    const image = images ? this.image(point) : null;
    const side = image?.complete && image.naturalWidth ? NEAR - 8 : 7;
    context.globalAlpha = this.label === null || this.label === name ? 1 : FAINT;
    context.lineWidth = 2;
    context.fillStyle = context.strokeStyle = color;
    if (side > 7) {
      const scale = side / Math.max(image.naturalWidth, image.naturalHeight);
      const [width, height] = [scale * image.naturalWidth, scale * image.naturalHeight];
      context.drawImage(image, x - width / 2, y - height / 2, width, height);
      context.strokeRect(x - width / 2, y - height / 2, width, height);
    } else {
      context.beginPath();
      context.arc(x, y, side / 2, 0, 7);
      context.fill();
    }
    if (!chosen) return;
    context.strokeStyle = getComputedStyle(this.canvas).color;
    context.beginPath();
    context.arc(x, y, side / 2 + 4, 0, 7);
    context.stroke();
  }

  image(point) {
    const id = this.data.ids[point];
    if (!this.images.has(id)) {
      const image = new Image();
      image.addEventListener("load", () => requestAnimationFrame(() => this.draw()), { once: true });
      image.src = api.thumbnail(id);
      this.images.set(id, image);
    }
    return this.images.get(id);
  }

  at(event) {
    const frame = this.canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  nearest(event) {
    const [px, py] = this.at(event);
    let best = -1;
    let least = 24 ** 2;
    for (let point = 0; point < this.data.ids.length; point += 1) {
      const [x, y] = this.place(point);
      const far = (x - px) ** 2 + (y - py) ** 2;
      if (far < least) [best, least] = [point, far];
    }
    return best;
  }

  begin(event) {
    this.from = { at: this.at(event), view: { ...this.view }, moved: false };
    if (this.lassoing || event.shiftKey) this.path = [this.from.at];
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.from) return this.hover(event);
    const [x, y] = this.at(event);
    const [dx, dy] = [x - this.from.at[0], y - this.from.at[1]];
    if (Math.hypot(dx, dy) > 4) this.from.moved = true;
    if (this.path) this.path.push([x, y]);
    else Object.assign(this.view, { x: this.from.view.x - dx / this.scale, y: this.from.view.y - dy / this.scale });
    return this.draw();
  }

  end(event) {
    const moved = this.from?.moved;
    this.from = null;
    if (this.path && moved) this.take(this.path);
    else if (moved) this.note();
    else this.open(this.nearest(event));
    this.path = null;
    this.draw();
  }

  /* Selects what lies within a line that is drawn around it. */
  take(path) {
    const inside = this.data.ids.filter((_, point) => within(this.place(point), path));
    selection.add(inside);
    this.say(`${number.format(inside.length)} images within the lasso, ${number.format(selection.size)} selected`);
  }

  hover(event) {
    const point = this.nearest(event);
    this.tip.hidden = point < 0;
    if (point >= 0) this.tell(point);
  }

  tell(point) {
    const [x, y] = this.place(point);
    const name = this.data.names[this.data.classOf[point]] ?? "without a label";
    this.tip.replaceChildren(element("img", { src: api.thumbnail(this.data.ids[point]), alt: "" }), name);
    this.tip.style.left = `${Math.min(x + 14, this.canvas.clientWidth - 130)}px`;
    this.tip.style.top = `${Math.min(y + 14, this.canvas.clientHeight - 130)}px`;
    return name;
  }

  open(point) {
    if (point >= 0) this.go(href("image", this.data.ids[point]));
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2);
  }

  zoom(factor) {
    this.look(this.view.x, this.view.y, Math.min(60, Math.max(0.5, this.view.zoom * factor)));
  }

  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "Enter" && this.chosen >= 0) this.open(this.chosen);
    else if (event.key === "x" && this.chosen >= 0) selection.toggle(this.data.ids[this.chosen]);
    else if (event.key in ways) this.step(ways[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  step([dx, dy]) {
    const from = this.chosen < 0 ? [this.view.x, this.view.y] : [this.data.x[this.chosen], this.data.y[this.chosen]];
    let best = this.chosen;
    let least = Infinity;
    for (let point = 0; point < this.data.ids.length; point += 1) {
      const [x, y] = [this.data.x[point] - from[0], this.data.y[point] - from[1]];
      const along = x * dx + y * dy;
      const aside = Math.abs(x * dy - y * dx);
      if (point !== this.chosen && along > 0 && aside <= along && along + aside < least) {
        [best, least] = [point, along + aside];
      }
    }
    if (best < 0) return;
    this.chosen = best;
    this.look(this.data.x[best], this.data.y[best], this.view.zoom);
    this.tip.hidden = false;
    this.say(this.tell(best));
  }
}

/* Whether a line from the point to the right crosses the border an odd number of times. */
function within([x, y], path) {
  let inside = false;
  for (let at = 0, before = path.length - 1; at < path.length; before = at, at += 1) {
    const [[ax, ay], [bx, by]] = [path[at], path[before]];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
