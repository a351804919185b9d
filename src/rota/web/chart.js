// @ts-check
/** Small charts over time: lines, steps or stacked areas. Shared by all pages. */

import { token } from "./dom.js";
import { clock, number, secondOf } from "./format.js";
import { timeStep } from "./lanes.js";
import { placeTip } from "./map.js";
import { steer } from "./span.js";

/** @typedef {[number, number]} Point time and value */
/** @typedef {{name: string, points: Point[], colour: string, dash?: number[]}} Series */
/** @typedef {(from: number, to: number, most: number) => [number, string][]} Ticks */

const BOTTOM = 20;
const TOP = 8;

/**
 * Round numbers for an axis from 0 (or below) to at least `most`.
 * @param {number} least
 * @param {number} most
 * @param {number} count about so many
 */
export function niceTicks(least, most, count) {
  if (!(most > least)) return { ticks: [least, least + 1], from: least, to: least + 1 };
  const rough = (most - least) / Math.max(1, count);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((each) => each >= rough) || 10 * size;
  const from = Math.floor(least / step) * step;
  const ticks = [];
  for (let at = 0; from + at * step < most + step * 0.999; at += 1) ticks.push(Number((from + at * step).toPrecision(12)));
  return { ticks, from, to: ticks[ticks.length - 1] };
}

/**
 * The value of a series that keeps its value until the next point.
 * @param {Point[]} points rising
 * @param {number} at
 * @returns {number | null} null: before the first
 */
export function valueAt(points, at) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle + 1;
    else high = middle;
  }
  return low ? points[low - 1][1] : null;
}

/** A chart on a canvas. */
export class TimeChart {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{height?: number, stacked?: boolean, step?: boolean, least?: number, format?: (value: number) => string, label?: (at: number) => string, about?: string, ticks?: Ticks, left?: number, span?: import("./span.js").Span, axis?: boolean}} [options] `span`: drag, double-click and keys choose the part in view
   */
  constructor(canvas, options = {}) {
    this.canvas = canvas;
    this.options = options;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Series[]} */
    this.series = [];
    this.from = 0;
    this.to = 1;
    /** @type {number | undefined} */
    this.most = undefined;
    this.asked = 0;
    /** @type {number | null} */
    this.pointer = null;
    this.left = 40;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    document.body.appendChild(this.tip);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", this.summary());
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(canvas.parentElement || canvas);
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", () => this.hover(null));
    /** @type {[number, number] | null} where a drag began, and where it is */
    this.brush = null;
    if (options.span) this.follow(options.span);
  }

  /** @param {import("./span.js").Span} span */
  follow(span) {
    const canvas = this.canvas;
    canvas.tabIndex = 0;
    canvas.style.cursor = "crosshair";
    span.users.add(() => {
      [this.from, this.to] = [span.from, span.to];
      this.redraw();
    });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType !== "mouse" || event.offsetX < this.left) return;
      this.brush = [event.offsetX, event.offsetX];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.brush) return;
      this.brush[1] = event.offsetX;
      this.redraw();
    });
    const leave = (/** @type {boolean} */ chosen) => {
      const brush = this.brush;
      this.brush = null;
      if (!brush) return;
      const [a, b] = brush.map((x) => this.timeAt(x)).sort((one, other) => one - other);
      if (chosen && Math.abs(brush[1] - brush[0]) > 4) span.set(a, b);
      else this.redraw();
    };
    canvas.addEventListener("pointerup", () => leave(true));
    canvas.addEventListener("pointercancel", () => leave(false));
    canvas.addEventListener("dblclick", () => span.reset());
    canvas.addEventListener("keydown", (event) => steer(event, span));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      span.zoom(Math.exp(event.deltaY * 0.002), (event.offsetX - this.left) / (this.wide - this.left));
    }, { passive: false });
  }

  get wide() {
    return this.canvas.parentElement?.clientWidth || 300;
  }

  /** @param {number} x */
  timeAt(x) {
    return this.from + ((x - this.left) / (this.wide - this.left)) * (this.to - this.from);
  }

  close() {
    this.observer.disconnect();
    this.tip.remove();
    cancelAnimationFrame(this.asked);
  }

  /**
   * @param {Series[]} series
   * @param {number} from
   * @param {number} to
   * @param {number} [most] the top of the axis, at least
   */
  set(series, from, to, most) {
    this.series = series;
    this.from = this.options.span ? this.options.span.from : from;
    this.to = this.options.span ? this.options.span.to : Math.max(to, from + 1e-6);
    this.most = most;
    this.canvas.setAttribute("aria-label", this.summary());
    this.redraw();
  }

  summary() {
    const format = this.options.format || number;
    const told = this.series.slice(0, 8).map((one) => `${one.name} ${one.points.length ? format(one.points[one.points.length - 1][1]) : "nothing yet"}`);
    return `${this.options.about || "Chart"}; last values: ${told.join(", ") || "none"}`;
  }

  redraw() {
    if (!this.asked) this.asked = requestAnimationFrame(() => this.draw());
  }

  /** @returns {[number, number]} */
  range() {
    let least = this.options.least ?? Infinity;
    let most = this.most ?? -Infinity;
    if (this.options.stacked) {
      for (const at of this.times()) most = Math.max(most, this.series.reduce((sum, one) => sum + (valueAt(one.points, at) || 0), 0));
      least = 0;
    } else {
      for (const one of this.series) {
        for (const [, value] of one.points) {
          least = Math.min(least, value);
          most = Math.max(most, value);
        }
      }
    }
    if (!Number.isFinite(most)) most = 1;
    if (!Number.isFinite(least)) least = 0;
    return [least, most > least ? most : least + 1];
  }

  times() {
    return [...new Set(this.series.flatMap((one) => one.points.map(([at]) => at)))].sort((a, b) => a - b);
  }

  draw() {
    this.asked = 0;
    const width = this.wide;
    const height = this.options.height || 160;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.context;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const format = this.options.format || ((value) => number(value));
    const { ticks, from, to } = niceTicks(...this.range(), Math.max(2, height / 45));
    context.font = "11px system-ui, sans-serif";
    this.left = this.options.left || Math.ceil(Math.max(...ticks.map((tick) => context.measureText(format(tick)).width))) + 8;
    const yOf = (/** @type {number} */ value) => TOP + (1 - (value - from) / (to - from)) * (height - TOP - BOTTOM);
    const quiet = token("--quiet");
    const line = token("--line");
    context.textBaseline = "middle";
    for (const tick of ticks) {
      context.fillStyle = line;
      context.fillRect(this.left, Math.round(yOf(tick)), width - this.left, 1);
      context.fillStyle = quiet;
      context.textAlign = "right";
      context.fillText(format(tick), this.left - 6, yOf(tick));
    }
    context.textAlign = "left";
    this.axis(quiet, width, height);
    context.save();
    context.beginPath();
    context.rect(this.left, 0, width - this.left, height - BOTTOM + 1);
    context.clip();
    if (this.options.stacked) this.areas(yOf);
    else for (const one of this.series) this.lineOf(one, yOf);
    context.restore();
    if (this.pointer !== null && !this.brush) {
      context.fillStyle = quiet;
      context.fillRect(this.xOf(this.pointer), TOP, 1, height - TOP - BOTTOM);
    }
    if (this.brush) {
      const [a, b] = this.brush;
      context.fillStyle = token("--accent");
      context.globalAlpha = 0.2;
      context.fillRect(Math.min(a, b), TOP, Math.abs(b - a), height - TOP - BOTTOM);
      context.globalAlpha = 1;
    }
  }

  /** @param {string} colour @param {number} width @param {number} height */
  axis(colour, width, height) {
    this.context.fillStyle = colour;
    if (this.options.axis === false) return;
    if (this.options.ticks) {
      let last = -Infinity;
      for (const [at, text] of this.options.ticks(this.from, this.to, Math.max(2, (width - this.left) / 80))) {
        const x = this.xOf(at);
        const half = this.context.measureText(text).width / 2;
        if (x - half < last || x + half > width) continue;
        this.context.fillText(text, x - half, height - 8);
        last = x + half + 8;
      }
      return;
    }
    const step = timeStep(this.to - this.from, Math.max(2, (width - this.left) / 80));
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.xOf(at);
      if (x < width - 34) this.context.fillText(this.options.label ? this.options.label(at) : step < 60 ? secondOf(at) : clock(at, this.to), x, height - 8);
    }
  }

  /** @param {number} at */
  xOf(at) {
    return this.left + ((at - this.from) / (this.to - this.from)) * (this.wide - this.left);
  }

  /** @param {Series} one @param {(value: number) => number} yOf */
  lineOf(one, yOf) {
    const context = this.context;
    context.strokeStyle = one.colour;
    context.lineWidth = 1.8;
    context.lineJoin = "round";
    context.setLineDash(one.dash || []);
    context.beginPath();
    let before = /** @type {number | null} */ (null);
    for (const [at, value] of one.points) {
      const x = this.xOf(at);
      if (before === null) context.moveTo(x, yOf(value));
      else {
        if (this.options.step) context.lineTo(x, yOf(before));
        context.lineTo(x, yOf(value));
      }
      before = value;
    }
    if (before !== null && this.options.step) context.lineTo(this.xOf(this.to), yOf(before));
    context.stroke();
    context.setLineDash([]);
    if (one.points.length === 1) {
      context.fillStyle = one.colour;
      context.beginPath();
      context.arc(this.xOf(one.points[0][0]), yOf(one.points[0][1]), 2.5, 0, 7);
      context.fill();
    }
  }

  /** @param {(value: number) => number} yOf */
  areas(yOf) {
    const context = this.context;
    const all = this.times().filter((at) => at <= this.to);
    const times = all.slice(Math.max(0, all.findLastIndex((at) => at <= this.from)));
    const floor = new Map(times.map((at) => [at, 0]));
    for (const one of this.series) {
      /** @type {[number, number, number][]} */
      const edge = times.map((at) => {
        const low = floor.get(at) || 0;
        const high = low + (valueAt(one.points, at) || 0);
        floor.set(at, high);
        return [at, low, high];
      });
      if (!edge.length) continue;
      context.fillStyle = one.colour;
      context.beginPath();
      const ends = edge.map((each, i) => Math.max(this.left, this.xOf(i + 1 < edge.length ? edge[i + 1][0] : this.to)));
      edge.forEach(([at, , high], i) => {
        context.lineTo(Math.max(this.left, this.xOf(at)), yOf(high));
        context.lineTo(ends[i], yOf(high));
      });
      for (let i = edge.length - 1; i >= 0; i -= 1) {
        context.lineTo(ends[i], yOf(edge[i][1]));
        context.lineTo(Math.max(this.left, this.xOf(edge[i][0])), yOf(edge[i][1]));
      }
      context.fill();
    }
  }

  /** @param {MouseEvent | null} event */
  hover(event) {
    if (!event || event.offsetX < this.left) {
      this.pointer = null;
      this.tip.hidden = true;
    } else {
      this.pointer = this.timeAt(event.offsetX);
      const format = this.options.format || ((value) => number(value));
      const label = this.options.label || ((at) => clock(at, this.to));
      const lines = this.series.map((one) => `${one.name}: ${describe(valueAt(one.points, /** @type {number} */ (this.pointer)), format)}`);
      this.tip.textContent = [label(this.pointer), ...lines.slice(0, 12)].join("\n");
      this.tip.hidden = false;
      placeTip(this.tip, event.clientX, event.clientY);
    }
    this.redraw();
  }
}

/** @param {number | null} value @param {(value: number) => string} format */
function describe(value, format) {
  return value === null ? "–" : format(value);
}
