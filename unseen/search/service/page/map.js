/* The map of the index: points on a canvas, zoom, thumbnails when near, click or Enter to search. */

import { map as fetchMap, thumbnail } from "./api.js";

const NEAR = 46; // pixels a thumbnail takes
const MOST_THUMBNAILS = 260;

export class EmbeddingMap {
  constructor(canvas, tip, status, search) {
    Object.assign(this, { canvas, tip, status, search, data: null, chosen: -1, images: new Map() });
    this.view = { x: 0, y: 0, zoom: 1 };
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  async load() {
    if (this.data || this.loading) return;
    this.loading = true;
    this.status.textContent = "drawing the map …";
    try {
      const data = await fetchMap();
      if (!data.ids.length) {
        this.status.textContent =
          data.status === "cannot be drawn" ? "The map cannot be drawn." : "There are too few pictures for a map.";
        return;
      }
      this.data = data;
      this.status.textContent = "";
      this.canvas.hidden = false;
      this.draw();
    } catch (error) {
      this.status.textContent = error.message;
    } finally {
      this.loading = false;
    }
  }

  place(point) {
    const { width, height } = this.frame();
    const scale = (Math.min(width, height) / 2.1) * this.view.zoom;
    return [width / 2 + (this.data.x[point] - this.view.x) * scale, height / 2 + (this.data.y[point] - this.view.y) * scale];
  }

  frame() {
    return { width: this.canvas.clientWidth, height: this.canvas.clientHeight };
  }

  draw() {
    if (!this.data || !this.canvas.clientWidth) return;
    const { width, height } = this.frame();
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
    const pictures = seen.length <= MOST_THUMBNAILS;
    for (const [point, x, y] of seen) this.mark(context, point, x, y, pictures);
    if (this.chosen >= 0) {
      const [x, y] = this.place(this.chosen);
      context.strokeStyle = getComputedStyle(this.canvas).color;
      context.lineWidth = 3;
      context.strokeRect(x - NEAR / 2, y - NEAR / 2, NEAR, NEAR);
    }
  }

  mark(context, point, x, y, pictures) {
    const colour = this.data.colours[this.data.classOf[point]] ?? "#888888";
    const image = pictures ? this.image(point) : null;
    if (image?.complete && image.naturalWidth) {
      const side = NEAR - 8;
      context.drawImage(image, x - side / 2, y - side / 2, side, side);
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.strokeRect(x - side / 2, y - side / 2, side, side);
      return;
    }
    context.fillStyle = colour;
    context.beginPath();
    context.arc(x, y, 3.5, 0, 7);
    context.fill();
  }

  image(point) {
    const id = this.data.ids[point];
    if (!this.images.has(id)) {
      const image = new Image();
      image.addEventListener("load", () => requestAnimationFrame(() => this.draw()), { once: true });
      image.src = thumbnail(id);
      this.images.set(id, image);
    }
    return this.images.get(id);
  }

  nearest(event) {
    const frame = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
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
    this.from = { x: event.clientX, y: event.clientY, view: { ...this.view }, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.from) return this.hover(event);
    const { width, height } = this.frame();
    const scale = (Math.min(width, height) / 2.1) * this.view.zoom;
    const [dx, dy] = [event.clientX - this.from.x, event.clientY - this.from.y];
    if (Math.hypot(dx, dy) > 4) this.from.moved = true;
    this.view.x = this.from.view.x - dx / scale;
    this.view.y = this.from.view.y - dy / scale;
    return this.draw();
  }

  end(event) {
    const moved = this.from?.moved;
    this.from = null;
    if (!moved) this.pick(this.nearest(event));
  }

  hover(event) {
    const point = this.nearest(event);
    this.tip.hidden = point < 0;
    if (point >= 0) this.tell(point);
  }

  tell(point) {
    const [x, y] = this.place(point);
    const image = new Image();
    image.src = thumbnail(this.data.ids[point]);
    image.alt = "";
    this.tip.replaceChildren(image, this.data.names[this.data.classOf[point]] ?? "without a label");
    this.tip.style.left = `${Math.min(x + 14, this.canvas.clientWidth - 130)}px`;
    this.tip.style.top = `${Math.min(y + 14, this.canvas.clientHeight - 130)}px`;
  }

  pick(point) {
    if (point < 0) return;
    this.chosen = point;
    this.draw();
    const label = this.data.names[this.data.classOf[point]] ?? null;
    this.search({ id: this.data.ids[point], label, name: label ?? "a picture of the map" });
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2);
  }

  zoom(factor) {
    this.view.zoom = Math.min(60, Math.max(0.5, this.view.zoom * factor));
    this.draw();
  }

  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key === "+" || event.key === "=") this.zoom(1.4);
    else if (event.key === "-") this.zoom(1 / 1.4);
    else if (event.key === "Enter" && this.chosen >= 0) this.pick(this.chosen);
    else if (event.key in ways) this.step(ways[event.key]);
    else return;
    event.preventDefault();
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
    this.view.x = this.data.x[best];
    this.view.y = this.data.y[best];
    this.draw();
    this.tip.hidden = false;
    this.tell(best);
  }
}
