// @ts-check
/** Who had which GPUs when: a lane for each node, a bar for each run. Shared by all pages. */

import { token } from "./dom.js";
import { clock, secondOf } from "./format.js";
import { placeTip } from "./map.js";

/** @typedef {{name: string, rows: number}} Lane `rows`: how many GPUs it has */
/** @typedef {{lane: number, rows: number, from: number, to: number | null, key: string, fill: string, label?: string, end?: string, row?: number, thin?: boolean}} LaneBar `row`: its place is known; `thin`: not drawn where it is thinner than a pixel */
/** @typedef {{lane: number, from: number, to: number}} Outage */
/** @typedef {LaneBar & {row: number}} PlacedBar */

const AXIS = 24;
export const LANE_LEFT = 92;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/**
 * Give bars rows inside their lanes, so that those at the same time lie below each other.
 * @param {Lane[]} lanes
 * @param {LaneBar[]} bars
 * @returns {PlacedBar[]}
 */
export function stack(lanes, bars) {
  const free = lanes.map((lane) => new Float64Array(Math.max(1, lane.rows)).fill(-Infinity));
  return [...bars].sort((a, b) => a.from - b.from).map((bar) => {
    if (bar.row !== undefined) return { ...bar, row: bar.row };
    const rows = free[bar.lane];
    const wanted = Math.max(1, Math.min(rows.length, Math.ceil(bar.rows)));
    let row = 0;
    for (let first = 0; first + wanted <= rows.length; first += 1) {
      let fits = true;
      for (let at = first; at < first + wanted && fits; at += 1) fits = rows[at] <= bar.from + 1e-6;
      if (fits) {
        row = first;
        break;
      }
    }
    rows.fill(bar.to ?? Infinity, row, row + wanted);
    return { ...bar, rows: wanted, row };
  });
}

/**
 * The distance of marks on an axis of time.
 * @param {number} span seconds
 * @param {number} most marks
 */
export function timeStep(span, most) {
  return STEPS.find((step) => span / step <= most) || Math.ceil(span / most / 604800) * 604800;
}

/** Lanes on a canvas: drag to move, ctrl and wheel to zoom, drag on the axis to choose. */
export class LaneChart {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {{describe?: (bar: LaneBar) => string, pick?: (bar: LaneBar) => void, moved?: (from: number, to: number) => void, label?: (at: number) => string, height?: number}} options
   */
  constructor(canvas, options) {
    this.canvas = canvas;
    this.options = options;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    /** @type {Lane[]} */
    this.lanes = [];
    /** @type {PlacedBar[]} */
    this.bars = [];
    /** @type {Outage[]} */
    this.outages = [];
    this.drawn = { bars: 0, ms: 0 };
    this.from = 0;
    this.to = 1;
    this.now = 1;
    this.asked = 0;
    this.row = 1; // how high a GPU is
    this.gap = 1;
    /** @type {number[]} */
    this.tops = [];
    this.ratio = 1;
    /** @type {[number, number] | null} */
    this.brush = null;
    /** @type {{x: number, from: number, to: number, axis: boolean, moved: boolean} | null} */
    this.drag = null;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    document.body.appendChild(this.tip);
    this.observer = new ResizeObserver(() => this.layout());
    this.observer.observe(canvas.parentElement || canvas);
    canvas.tabIndex = 0;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  close() {
    this.observer.disconnect();
    this.tip.remove();
    cancelAnimationFrame(this.asked);
  }

  /**
   * @param {Lane[]} lanes
   * @param {LaneBar[]} bars
   * @param {number} now
   * @param {Outage[]} [outages] when nodes were not there
   */
  set(lanes, bars, now, outages = []) {
    this.lanes = lanes;
    this.outages = outages;
    this.now = now;
    this.bars = stack(lanes, bars);
    this.layout();
  }

  /** @param {number} from @param {number} to */
  show(from, to) {
    if (!(to - from > 1e-3)) return;
    this.from = from;
    this.to = to;
    this.options.moved?.(from, to);
    this.redraw();
  }

  /** @param {number} factor @param {number} [x] where it stays */
  zoom(factor, x = LANE_LEFT + this.plot / 2) {
    const at = this.timeAt(x);
    this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  get plot() {
    return Math.max(10, this.width() - LANE_LEFT);
  }

  width() {
    return this.canvas.parentElement?.clientWidth || this.canvas.clientWidth || 300;
  }

  /** @param {number} x */
  timeAt(x) {
    return this.from + ((x - LANE_LEFT) / this.plot) * (this.to - this.from);
  }

  /** @param {number} at */
  xOf(at) {
    return LANE_LEFT + ((at - this.from) / (this.to - this.from)) * this.plot;
  }

  layout() {
    const rows = this.lanes.reduce((sum, lane) => sum + Math.max(1, lane.rows), 0) || 1;
    const wanted = this.options.height || 560;
    const tallest = this.bars.some((bar) => bar.rows < 1) ? 22 : 11; // parts of GPUs are seen, too
    this.row = Math.max(1, Math.min(tallest, Math.floor((wanted - AXIS - this.lanes.length * 3) / rows)));
    this.gap = this.row > 2 ? 4 : 1;
    let y = AXIS;
    this.tops = this.lanes.map((lane) => {
      const top = y;
      y += Math.max(1, lane.rows) * this.row + this.gap;
      return top;
    });
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.ratio = ratio;
    const width = this.width();
    const height = Math.min(16000, y + 2);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.redraw();
  }

  redraw() {
    if (!this.asked) this.asked = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.asked = 0;
    const begun = performance.now();
    const context = this.context;
    const ratio = this.ratio;
    const width = this.canvas.width / ratio;
    const height = this.canvas.height / ratio;
    const style = { ground: token("--card"), line: token("--line"), quiet: token("--quiet"), ink: token("--ink"), free: token("--free"), accent: token("--accent") };
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = style.ground;
    context.fillRect(0, 0, width, height);
    this.drawLanes(style, width);
    context.save();
    context.beginPath();
    context.rect(LANE_LEFT, 0, width - LANE_LEFT, height);
    context.clip();
    this.drawAxis(style, height);
    this.drawOutages(style);
    const taken = new Set(); // pixels that a bar thinner than one has
    for (const bar of this.bars) this.drawBar(bar, style, taken);
    const now = this.xOf(this.now);
    context.fillStyle = style.accent;
    context.fillRect(now, AXIS - 4, 1.5, height);
    if (this.brush) {
      const [a, b] = this.brush;
      context.globalAlpha = 0.18;
      context.fillRect(Math.min(a, b), 0, Math.abs(b - a), height);
      context.globalAlpha = 1;
    }
    context.restore();
    this.drawn = { bars: this.bars.length, ms: performance.now() - begun };
  }

  /** @param {Record<string, string>} style */
  drawOutages(style) {
    if (!this.outages.length) return;
    const context = this.context;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const lines = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    lines.strokeStyle = style.quiet;
    for (const by of [-6, 0, 6]) {
      lines.moveTo(by - 1, 7);
      lines.lineTo(by + 7, -1);
    }
    lines.stroke();
    context.fillStyle = context.createPattern(tile, "repeat") || style.quiet;
    for (const { lane, from, to } of this.outages) {
      if (to < this.from || from > this.to) continue;
      const x = this.xOf(Math.max(from, this.from));
      context.fillRect(x, this.tops[lane], Math.max(1, this.xOf(Math.min(to, this.to)) - x), Math.max(1, this.lanes[lane].rows) * this.row);
    }
  }

  /** @param {Record<string, string>} style @param {number} width */
  drawLanes(style, width) {
    const context = this.context;
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    let last = -Infinity;
    this.lanes.forEach((lane, i) => {
      const top = this.tops[i];
      const high = Math.max(1, lane.rows) * this.row;
      context.fillStyle = style.free;
      context.fillRect(LANE_LEFT, top, width - LANE_LEFT, high);
      const middle = top + high / 2;
      if (middle - last < 13) return;
      last = middle;
      context.fillStyle = style.quiet;
      context.fillText(lane.name.length > 13 ? `${lane.name.slice(0, 12)}…` : lane.name, 2, middle);
    });
  }

  /** @param {Record<string, string>} style @param {number} height */
  drawAxis(style, height) {
    const context = this.context;
    const step = timeStep(this.to - this.from, Math.max(2, this.plot / 90));
    context.font = "11px system-ui, sans-serif";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.xOf(at);
      context.fillStyle = style.line;
      context.fillRect(x, AXIS - 6, 1, height);
      context.fillStyle = style.quiet;
      context.fillText(this.options.label ? this.options.label(at) : step < 60 ? secondOf(at) : clock(at, this.now), x + 4, 10);
    }
  }

  /** @param {PlacedBar} bar @param {Record<string, string>} style @param {Set<number>} taken */
  drawBar(bar, style, taken) {
    const end = bar.to ?? this.now;
    if (end < this.from || bar.from > this.to) return;
    const context = this.context;
    const [x, y, wide, high] = this.box(bar);
    if (wide <= 1) {
      if (bar.thin) return;
      const spot = Math.round(x) * 65536 + Math.round(y);
      if (taken.has(spot)) return;
      taken.add(spot);
    }
    context.fillStyle = bar.fill;
    context.fillRect(x, y, wide, high);
    if (bar.end && !["done", "move"].includes(bar.end) && wide > 3) {
      context.fillStyle = style.ink;
      context.fillRect(x + wide - 2, y, 2, high); // it did not come to its own end
    }
    if (bar.label && high >= 10 && wide > 26) {
      context.save();
      context.beginPath();
      context.rect(Math.max(LANE_LEFT, x), y, wide - 4, high);
      context.clip();
      context.fillStyle = style.ground;
      context.font = `${Math.min(11, high - 1)}px system-ui, sans-serif`;
      context.textBaseline = "middle";
      context.fillText(bar.label, Math.max(LANE_LEFT, x) + 4, y + high / 2 + 0.5);
      context.restore();
    }
  }

  /** @param {PlacedBar} bar @returns {[number, number, number, number]} */
  box(bar) {
    const { row } = this;
    const x = Math.max(LANE_LEFT - 2, this.xOf(bar.from));
    const wide = Math.max(1, Math.min(this.width() + 2, this.xOf(bar.to ?? this.now)) - x - (row > 2 ? 1 : 0));
    const y = this.tops[bar.lane] + bar.row * row;
    return [x, y, wide, Math.max(1, bar.rows * row - (row > 2 ? 1 : 0))];
  }

  /** @param {number} x @param {number} y @returns {PlacedBar | null} */
  barAt(x, y) {
    if (x < LANE_LEFT) return null;
    for (let i = this.bars.length - 1; i >= 0; i -= 1) {
      const [left, top, wide, high] = this.box(this.bars[i]);
      if (x >= left && x <= left + Math.max(3, wide) && y >= top && y <= top + high) return this.bars[i];
    }
    return null;
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    if (event.ctrlKey || event.metaKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX);
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (((event.deltaX || event.deltaY) / this.plot) * (this.to - this.from));
      this.show(this.from + by, this.to + by);
    } else return;
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    const axis = event.offsetY < AXIS || event.altKey;
    this.drag = { x: event.offsetX, from: this.from, to: this.to, axis, moved: false };
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (this.drag) {
      this.tip.hidden = true;
      const by = event.offsetX - this.drag.x;
      this.drag.moved ||= Math.abs(by) > 3;
      if (this.drag.axis) {
        this.brush = [this.drag.x, event.offsetX];
        this.redraw();
      } else if (this.drag.moved) {
        const time = (by / this.plot) * (this.drag.to - this.drag.from);
        this.show(this.drag.from - time, this.drag.to - time);
      }
      return;
    }
    const bar = this.barAt(event.offsetX, event.offsetY);
    this.canvas.style.cursor = bar && this.options.pick ? "pointer" : event.offsetY < AXIS ? "col-resize" : "grab";
    this.tip.hidden = !bar || !this.options.describe;
    if (bar && this.options.describe) {
      this.tip.textContent = this.options.describe(bar);
      placeTip(this.tip, event.clientX, event.clientY);
    }
  }

  /** @param {PointerEvent} event */
  release(event) {
    const drag = this.drag;
    this.drag = null;
    if (this.brush && drag) {
      const [a, b] = this.brush.map((x) => this.timeAt(x)).sort((one, other) => one - other);
      this.brush = null;
      if (Math.abs(event.offsetX - drag.x) > 4) this.show(a, b);
      else this.redraw();
    } else if (drag && !drag.moved) {
      const bar = this.barAt(event.offsetX, event.offsetY);
      if (bar) this.options.pick?.(bar);
    }
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const span = this.to - this.from;
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "ArrowLeft") this.show(this.from - span / 5, this.to - span / 5);
    else if (event.key === "ArrowRight") this.show(this.from + span / 5, this.to + span / 5);
    else if (event.key === "0") this.whole();
    else return;
    event.preventDefault();
  }

  /** Everything that there is. */
  whole() {
    const first = this.bars.reduce((least, bar) => Math.min(least, bar.from), this.now - 60);
    this.show(first, this.now + (this.now - first) * 0.02);
  }
}
