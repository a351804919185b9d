// @ts-check
/** The cluster as a map: a block for each node, a cell for each GPU. Shared by all pages. */

import { isDark } from "./colours.js";
import { token } from "./dom.js";

/** @typedef {{name: string, gpus: number, state?: string}} MapNode */
/** @typedef {{fill: string, label?: string} | null} Paint null: nobody has it */
/** @typedef {{node: number, gpu: number, place: number}} Spot */

const LARGEST = 30;
const SMALLEST = 4;
const LABELLED = 15; // cells of at least this size have letters, and their nodes names

/** Nodes and their GPUs on a canvas. */
export class ClusterMap {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{height?: number, paint: (owner: number, place: number) => Paint, parts?: (place: number) => NonNullable<Paint>[], describe?: (spot: Spot) => string, pick?: (spot: Spot) => void}} options
   */
  constructor(canvas, options) {
    this.canvas = canvas;
    this.options = options;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    /** @type {MapNode[]} */
    this.nodes = [];
    /** @type {number[]} the first place of each node */
    this.firsts = [];
    /** @type {ArrayLike<number>} */
    this.owners = [];
    /** @type {Int32Array} the node of each place */
    this.nodeOf = new Int32Array(0);
    this.size = 12; // of a cell
    this.gap = 1; // between cells
    this.between = 3; // between nodes
    this.title = 0; // room for the name of a node
    this.wide = this.high = 1; // of a node
    this.tall = 1; // of everything
    this.columns = 1; // of nodes
    this.across = 4; // GPUs side by side
    this.ratio = 1;
    this.spot = -1;
    /** @type {Set<number> | null} null: everything */
    this.dirty = null;
    this.asked = 0;
    this.drawn = { cells: 0, ms: 0 };
    this.tip = /** @type {HTMLElement | null} */ (null);
    this.observer = new ResizeObserver(() => this.layout());
    this.observer.observe(canvas.parentElement || canvas);
    canvas.tabIndex = 0;
    canvas.addEventListener("mousemove", (event) => this.hover(this.at(event.offsetX, event.offsetY)));
    canvas.addEventListener("mouseleave", () => this.hover(null));
    canvas.addEventListener("blur", () => this.hover(null));
    canvas.addEventListener("click", (event) => this.choose(this.at(event.offsetX, event.offsetY)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  close() {
    this.observer.disconnect();
    this.tip?.remove();
    cancelAnimationFrame(this.asked);
  }

  /**
   * @param {MapNode[]} nodes
   * @param {ArrayLike<number>} owners one for each GPU, nodes one after the other
   */
  set(nodes, owners) {
    const same = nodes.length === this.nodes.length && nodes.every((node, i) => node.gpus === this.nodes[i].gpus);
    this.nodes = nodes;
    this.owners = owners;
    if (same) return this.redraw(null);
    let first = 0;
    this.firsts = nodes.map((node) => (first += node.gpus) - node.gpus);
    this.nodeOf = new Int32Array(first);
    nodes.forEach((node, i) => this.nodeOf.fill(i, this.firsts[i], this.firsts[i] + node.gpus));
    this.layout();
  }

  /**
   * Draw these places with the next frame; null: all.
   * @param {Iterable<number> | null} places
   */
  redraw(places) {
    if (places === null) this.dirty = null;
    else if (this.dirty) for (const place of places) this.dirty.add(place);
    if (!this.asked) this.asked = requestAnimationFrame(() => this.draw());
  }

  /** Find the largest cells with which everything fits. */
  layout() {
    const width = this.canvas.parentElement?.clientWidth || this.canvas.clientWidth;
    if (!width || !this.nodes.length) return;
    const most = Math.max(1, ...this.nodes.map((node) => node.gpus));
    this.across = most <= 4 ? most : most <= 16 ? Math.ceil(most / 2) : Math.ceil(Math.sqrt(most) * 1.6);
    const down = Math.ceil(most / this.across);
    const tallest = this.options.height || 640;
    let size = LARGEST + 1;
    do {
      size -= 1;
      this.measure(size, down, width);
    } while (size > SMALLEST && this.tall > tallest);
    const ratio = window.devicePixelRatio || 1;
    this.ratio = ratio;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.tall * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.tall}px`;
    this.redraw(null);
  }

  /** @param {number} size @param {number} down @param {number} width */
  measure(size, down, width) {
    this.size = size;
    this.gap = size > 11 ? 2 : 1;
    this.between = Math.max(3, Math.round(size * 0.45));
    this.title = size >= LABELLED ? 18 : 0;
    this.wide = this.across * size + this.between;
    this.high = down * size + this.between + this.title;
    this.columns = Math.max(1, Math.floor((width + this.between) / this.wide));
    this.tall = Math.ceil(this.nodes.length / this.columns) * this.high;
  }

  /** @param {number} place @returns {[number, number]} */
  corner(place) {
    const node = this.nodeOf[place];
    const gpu = place - this.firsts[node];
    const x = (node % this.columns) * this.wide + (gpu % this.across) * this.size;
    const y = Math.floor(node / this.columns) * this.high + this.title + Math.floor(gpu / this.across) * this.size;
    return [x, y];
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {Spot | null}
   */
  at(x, y) {
    if (!this.nodes.length) return null;
    const column = Math.floor(x / this.wide);
    const row = Math.floor(y / this.high);
    const node = row * this.columns + column;
    const inside = y - row * this.high - this.title;
    const across = Math.floor((x - column * this.wide) / this.size);
    const gpu = Math.floor(inside / this.size) * this.across + across;
    if (column >= this.columns || inside < 0 || across >= this.across || !this.nodes[node] || gpu < 0 || gpu >= this.nodes[node].gpus) return null;
    return { node, gpu, place: this.firsts[node] + gpu };
  }

  draw() {
    this.asked = 0;
    const begun = performance.now();
    const context = this.context;
    const ratio = this.ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = { free: token("--free"), line: token("--line"), ink: token("--ink"), quiet: token("--quiet"), ground: token("--card"), down: token("--bad") };
    let cells = 0;
    if (this.dirty === null) {
      context.fillStyle = style.ground;
      context.fillRect(0, 0, this.canvas.width, this.canvas.height);
      if (this.title) this.names(style.quiet);
      for (let place = 0; place < this.nodeOf.length; place += 1) this.cell(place, style);
      cells = this.nodeOf.length;
    } else {
      for (const place of this.dirty) this.cell(place, style);
      cells = this.dirty.size;
    }
    this.dirty = new Set();
    this.drawn = { cells, ms: performance.now() - begun };
  }

  /** @param {string} colour */
  names(colour) {
    const context = this.context;
    context.fillStyle = colour;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    const room = this.wide - 4;
    this.nodes.forEach((node, i) => {
      const [x, y] = this.corner(this.firsts[i]);
      const state = node.state && node.state !== "up" ? ` · ${node.state}` : "";
      context.fillText(cut(context, node.name + state, room), x, y - 9);
    });
  }

  /** @param {number} place @param {Record<string, string>} style */
  cell(place, style) {
    const context = this.context;
    const [x, y] = this.corner(place);
    const side = this.size - this.gap;
    const state = this.nodes[this.nodeOf[place]].state || "up";
    const paint = this.options.paint(this.owners[place], place);
    const parts = this.options.parts?.(place) || [];
    context.fillStyle = paint && !parts.length ? paint.fill : style.free;
    context.fillRect(x, y, side, side);
    parts.forEach((part, i) => {
      const left = Math.round((i * side) / parts.length);
      context.fillStyle = part.fill;
      context.fillRect(x + left, y, Math.max(1, Math.round(((i + 1) * side) / parts.length) - left - (side / parts.length > 4 ? 1 : 0)), side);
    });
    if (state === "down" || state === "silent") {
      context.strokeStyle = style.down;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + side, y + side);
      context.moveTo(x + side, y);
      context.lineTo(x, y + side);
      context.stroke();
    } else if (state !== "up") {
      context.fillStyle = style.ground;
      context.fillRect(x, y + side / 2, side, Math.max(1, side / 8));
    }
    if (paint?.label && !parts.length && this.size >= LABELLED) {
      context.fillStyle = isDark() ? "#10131a" : "#fff";
      context.font = `600 ${Math.round(side * 0.5)}px system-ui, sans-serif`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.fillText(paint.label, x + side / 2, y + side / 2 + 0.5);
      context.textAlign = "left";
    }
    if (place === this.spot) {
      context.strokeStyle = style.ink;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, side - 2, side - 2);
    }
  }

  /** @param {Spot | null} spot */
  hover(spot) {
    const place = spot ? spot.place : -1;
    if (place === this.spot) return;
    const before = this.spot;
    this.spot = place;
    this.redraw([before, place].filter((each) => each >= 0));
    this.canvas.style.cursor = spot && this.options.pick ? "pointer" : "default";
    this.tell(spot);
  }

  /** @param {Spot | null} spot */
  tell(spot) {
    if (!this.options.describe) return;
    if (!this.tip) {
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.setAttribute("role", "status");
      document.body.appendChild(this.tip);
    }
    this.tip.hidden = !spot;
    if (!spot) return;
    this.tip.textContent = this.options.describe(spot);
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = this.corner(spot.place);
    placeTip(this.tip, box.left + x + this.size, box.top + y + this.size);
  }

  /** @param {Spot | null} spot */
  choose(spot) {
    if (spot && this.options.pick) this.options.pick(spot);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const steps = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across });
    if (event.key === "Enter" && this.spot >= 0) this.choose(this.spotOf(this.spot));
    else if (event.key in steps && this.nodeOf.length) {
      const place = Math.min(this.nodeOf.length - 1, Math.max(0, this.spot < 0 ? 0 : this.spot + steps[event.key]));
      this.hover(this.spotOf(place));
    } else return;
    event.preventDefault();
  }

  /** @param {number} place @returns {Spot} */
  spotOf(place) {
    const node = this.nodeOf[place];
    return { node, gpu: place - this.firsts[node], place };
  }
}

/**
 * Put a tip near a point, inside the window.
 * @param {HTMLElement} tip
 * @param {number} x
 * @param {number} y
 */
export function placeTip(tip, x, y) {
  tip.style.left = "0";
  tip.style.top = "0";
  const { offsetWidth: wide, offsetHeight: high } = tip;
  tip.style.left = `${Math.max(4, Math.min(x + 8, window.innerWidth - wide - 8))}px`;
  tip.style.top = `${Math.max(4, y + 8 + high > window.innerHeight ? y - high - 14 : y + 8)}px`;
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} room */
function cut(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > 1 && context.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}
