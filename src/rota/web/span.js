// @ts-check
/** The part of an axis that is in view; charts that share one show the same part. */

export class Span {
  /** @param {number} from @param {number} to */
  constructor(from, to) {
    /** @type {[number, number]} */
    this.full = [from, to > from ? to : from + 1];
    /** @type {number} */
    this.from = this.full[0];
    /** @type {number} */
    this.to = this.full[1];
    /** @type {Set<() => void>} */
    this.users = new Set();
  }

  get whole() {
    return this.from === this.full[0] && this.to === this.full[1];
  }

  /** Show a part; it is kept inside, and never smaller than can be told apart. @param {number} from @param {number} to */
  set(from, to) {
    const [first, last] = this.full;
    const least = (last - first) * 1e-5;
    const length = Math.min(Math.max(to - from, least), last - first);
    const middle = to - from < least ? (from + to) / 2 : from + length / 2;
    const begin = Math.min(Math.max(middle - length / 2, first), last - length);
    if (begin === this.from && begin + length === this.to) return;
    this.from = begin;
    this.to = length === last - first ? last : begin + length;
    for (const user of this.users) user();
  }

  /** @param {number} factor below 1: closer @param {number} [share] what stays where it is */
  zoom(factor, share = 0.5) {
    const centre = this.from + (this.to - this.from) * share;
    this.set(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
  }

  /** @param {number} share of what is in view */
  move(share) {
    const by = (this.to - this.from) * share;
    this.set(this.from + by, this.to + by);
  }

  reset() {
    this.set(...this.full);
  }
}

/**
 * Keys that move and zoom.
 * @param {KeyboardEvent} event
 * @param {Span} span
 */
export function steer(event, span) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "+" || event.key === "=") span.zoom(0.5);
  else if (event.key === "-") span.zoom(2);
  else if (event.key === "ArrowLeft") span.move(-0.2);
  else if (event.key === "ArrowRight") span.move(0.2);
  else if (event.key === "0") span.reset();
  else return;
  event.preventDefault();
}
