// @ts-check
/** How full every node was over time: a row for each node, a cell for each bin. */

import { ramp } from "./colours.js";
import { token } from "./dom.js";
import { sinceStart } from "./format.js";
import { timeStep } from "./lanes.js";
import { placeTip } from "./map.js";
import { steer } from "./span.js";

const FOOT = 22;
export const DOWN_CELL = 255;
export const FULL_CELL = 250;

export class HeatChart {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{span: import("./span.js").Span, left: number, what: string, about: string}} options
   */
  constructor(canvas, options) {
    this.canvas = canvas;
    this.options = options;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {string[]} */
    this.nodes = [];
    this.bins = 0;
    /** @type {ArrayLike<number>} */
    this.cells = [];
    this.top = 1;
    this.until = 1;
    this.asked = 0;
    /** @type {HTMLCanvasElement | null} */
    this.image = null;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    document.body.appendChild(this.tip);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", options.about);
    canvas.tabIndex = 0;
    canvas.addEventListener("keydown", (event) => steer(event, options.span));
    canvas.addEventListener("dblclick", () => options.span.reset());
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    options.span.users.add(() => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement || canvas);
  }

  /**
   * @param {string[]} nodes
   * @param {number} bins
   * @param {ArrayLike<number>} cells nodes one after the other
   * @param {number} top what a full cell stands for
   * @param {number} most what the strongest colour stands for
   * @param {number} until when the last bin ends
   */
  set(nodes, bins, cells, top, most, until) {
    [this.nodes, this.bins, this.cells, this.top, this.until] = [nodes, bins, cells, top, until];
    this.most = most;
    this.image = null;
    this.redraw();
  }

  /** Colours are others now. */
  repaint() {
    this.image = null;
    this.redraw();
  }

  redraw() {
    if (!this.asked) this.asked = requestAnimationFrame(() => this.draw());
  }

  get wide() {
    return this.canvas.parentElement?.clientWidth || 300;
  }

  paint() {
    const strip = document.createElement("canvas");
    strip.width = FULL_CELL + 2;
    strip.height = 1;
    const brush = /** @type {CanvasRenderingContext2D} */ (strip.getContext("2d"));
    for (let i = 0; i <= FULL_CELL; i += 1) {
      brush.fillStyle = ramp((i / FULL_CELL) * (this.top / (this.most || 1)));
      brush.fillRect(i, 0, 1, 1);
    }
    brush.fillStyle = token("--bad");
    brush.fillRect(FULL_CELL + 1, 0, 1, 1);
    const colours = new Uint32Array(brush.getImageData(0, 0, FULL_CELL + 2, 1).data.buffer);
    const image = document.createElement("canvas");
    image.width = Math.max(1, this.bins);
    image.height = Math.max(1, this.nodes.length);
    const context = /** @type {CanvasRenderingContext2D} */ (image.getContext("2d"));
    const data = context.createImageData(image.width, image.height);
    const pixels = new Uint32Array(data.data.buffer);
    for (let i = 0; i < this.cells.length; i += 1) pixels[i] = colours[this.cells[i] === DOWN_CELL ? FULL_CELL + 1 : this.cells[i]];
    context.putImageData(data, 0, 0);
    return image;
  }

  draw() {
    this.asked = 0;
    const width = this.wide;
    const tall = Math.min(Math.max(this.nodes.length * 9, 90), 420);
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const { context, canvas } = this;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((tall + FOOT) * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${tall + FOOT}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = token("--quiet");
    if (!this.bins) {
      context.fillText("not known of this run", this.options.left, tall / 2);
      return;
    }
    const { from, to } = this.options.span;
    const left = this.options.left;
    const xOf = (/** @type {number} */ at) => left + ((at - from) / (to - from)) * (width - left);
    let last = -Infinity;
    this.nodes.forEach((name, i) => {
      const y = ((i + 0.5) / this.nodes.length) * tall;
      if (y - last < 13) return;
      last = y;
      context.fillText(name.length > 13 ? `…${name.slice(-12)}` : name, 2, y);
    });
    const step = timeStep(to - from, Math.max(2, (width - left) / 90));
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) if (xOf(at) < width - 40) context.fillText(sinceStart(at, step), xOf(at), tall + FOOT / 2 + 2);
    this.image ||= this.paint();
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, tall);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, xOf(0), 0, xOf(this.until) - xOf(0), tall);
    context.restore();
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const { from, to } = this.options.span;
    const left = this.options.left;
    const at = from + ((event.offsetX - left) / (this.wide - left)) * (to - from);
    const tall = Math.min(Math.max(this.nodes.length * 9, 90), 420);
    const node = Math.floor((event.offsetY / tall) * this.nodes.length);
    const bin = Math.floor((at / this.until) * this.bins);
    this.tip.hidden = event.offsetX < left || !this.nodes[node] || bin < 0 || bin >= this.bins;
    if (this.tip.hidden) return;
    const cell = this.cells[node * this.bins + bin];
    const share = `${((cell / FULL_CELL) * this.top * 100).toFixed(1)} %`;
    this.tip.textContent = `${this.nodes[node]}\n${cell === DOWN_CELL ? "down" : `${share} ${this.options.what}`}\nat ${sinceStart(at)}`;
    placeTip(this.tip, event.clientX, event.clientY);
  }
}
