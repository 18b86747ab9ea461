/* The asked image on a canvas, and a box on it: by pointer or by keys. */

const SIDE = 340;
const LEAST = 160; // a small image is shown larger
const STEP = 0.04;

export class Crop {
  constructor(canvas, onChange) {
    this.canvas = canvas;
    this.onChange = onChange;
    this.image = null;
    this.box = null; // left, top, width, height as shares
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.end(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(image, box) {
    this.image = image;
    this.box = box;
    const longer = Math.max(image.width, image.height);
    const scale = longer < LEAST ? LEAST / longer : Math.min(1, SIDE / longer);
    this.canvas.width = Math.max(1, Math.round(image.width * scale));
    this.canvas.height = Math.max(1, Math.round(image.height * scale));
    this.draw();
  }

  draw() {
    const { canvas, box } = this;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.image, 0, 0, canvas.width, canvas.height);
    if (!box) return;
    const [x, y, w, h] = [box[0] * canvas.width, box[1] * canvas.height, box[2] * canvas.width, box[3] * canvas.height];
    context.fillStyle = "rgba(0, 0, 0, 0.55)";
    context.fillRect(0, 0, canvas.width, y);
    context.fillRect(0, y + h, canvas.width, canvas.height - y - h);
    context.fillRect(0, y, x, h);
    context.fillRect(x + w, y, canvas.width - x - w, h);
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2;
    context.strokeRect(x, y, w, h);
  }

  place(event) {
    const frame = this.canvas.getBoundingClientRect();
    const clip = (value) => Math.min(1, Math.max(0, value));
    return [clip((event.clientX - frame.left) / frame.width), clip((event.clientY - frame.top) / frame.height)];
  }

  begin(event) {
    this.start = this.place(event);
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.start) return;
    const [x, y] = this.place(event);
    const [left, top] = [Math.min(x, this.start[0]), Math.min(y, this.start[1])];
    this.box = [left, top, Math.abs(x - this.start[0]), Math.abs(y - this.start[1])];
    this.draw();
  }

  end() {
    if (!this.start) return;
    this.start = null;
    if (this.box && (this.box[2] < 0.03 || this.box[3] < 0.03)) this.box = null; // a click, not a box
    this.draw();
    if (this.box) this.onChange(this.box);
  }

  key(event) {
    const moves = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };
    if (event.key === "Enter") this.onChange(this.box);
    else if (event.key === "Escape" && this.box) this.onChange(null);
    else if (event.key in moves) {
      const [dx, dy] = moves[event.key];
      const box = this.box ?? [0.25, 0.25, 0.5, 0.5];
      if (event.shiftKey) {
        box[2] = Math.min(1 - box[0], Math.max(0.05, box[2] + dx));
        box[3] = Math.min(1 - box[1], Math.max(0.05, box[3] + dy));
      } else if (this.box) {
        box[0] = Math.min(1 - box[2], Math.max(0, box[0] + dx));
        box[1] = Math.min(1 - box[3], Math.max(0, box[1] + dy));
      }
      this.box = box;
      this.draw();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
