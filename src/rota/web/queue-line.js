// @ts-check
/** The queue as a moving line: a block for each job that waits, as wide as it is large. */

import { isDark } from "./colours.js";
import { token } from "./dom.js";
import { number } from "./format.js";

/** @typedef {{key: number, gpus: number, fill: string, reason: string, colour: string}} Block */

const HIGH = 34;
const GAP = 3;
const EASE = 0.28;

/** @param {number} gpus */
export function blockWidth(gpus) {
  return Math.round(9 + 3 * Math.sqrt(Math.min(gpus, 256)) * 1.6);
}

export class QueueLine {
  /** @param {HTMLCanvasElement} canvas @param {(key: number) => void} pick */
  constructor(canvas, pick) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** @type {Map<number, {x: number, target: number, block: Block}>} */
    this.places = new Map();
    this.more = 0;
    this.size = "";
    canvas.setAttribute("role", "img");
    canvas.addEventListener("click", (event) => {
      for (const [key, place] of this.places) if (event.offsetX >= place.x && event.offsetX <= place.x + blockWidth(place.block.gpus)) return pick(key);
      return undefined;
    });
  }

  get wide() {
    return this.canvas.parentElement?.clientWidth || 300;
  }

  /**
   * @param {Block[]} blocks the first in front
   * @param {boolean} jumps do not move there, be there
   */
  set(blocks, jumps) {
    const width = this.wide - 56;
    const places = new Map();
    let x = 0;
    let shown = 0;
    for (const block of blocks) {
      const wide = blockWidth(block.gpus);
      if (x + wide > width) break;
      const known = this.places.get(block.key);
      places.set(block.key, { x: jumps ? x : known ? known.x : width, target: x, block });
      x += wide + GAP;
      shown += 1;
    }
    this.places = places;
    this.more = blocks.length - shown;
    this.canvas.setAttribute("aria-label", `Jobs that wait: ${blocks.length}`);
  }

  draw() {
    const { context, canvas } = this;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = this.wide;
    const size = `${width}x${ratio}`;
    if (size !== this.size) {
      this.size = size;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round((HIGH + 4) * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${HIGH + 4}px`;
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, HIGH + 4);
    context.font = "600 11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const ink = isDark() ? "#10131a" : "#fff";
    for (const place of this.places.values()) {
      place.x += (place.target - place.x) * EASE;
      if (Math.abs(place.target - place.x) < 0.5) place.x = place.target;
      const wide = blockWidth(place.block.gpus);
      context.fillStyle = place.block.fill;
      context.fillRect(place.x, 0, wide, HIGH - 6);
      context.fillStyle = place.block.colour;
      context.fillRect(place.x, HIGH - 4, wide, 4);
      if (wide >= 13) {
        context.fillStyle = ink;
        context.fillText(number(place.block.gpus), place.x + wide / 2, (HIGH - 6) / 2 + 0.5);
      }
    }
    context.fillStyle = token("--quiet");
    context.textAlign = "right";
    if (this.more) context.fillText(`+ ${number(this.more)}`, width - 2, (HIGH - 6) / 2);
    else if (!this.places.size) {
      context.textAlign = "left";
      context.fillText("nobody waits", 2, (HIGH - 6) / 2);
    }
  }
}
