// @ts-check
/** A run as it was at any moment: who had which GPUs, who waited and why. Forward it costs what happens; elsewhere it is found anew. */

import { lastBefore } from "./columns.js";

/** @typedef {Record<string, import("./columns.js").Column>} Columns */

/** Kinds of decisions, as `rota.report.watch` numbers them. */
export const WHAT = ["starts", "starts again", "moves", "is stopped", "loses its node", "is refused", "node down", "node up"];

export class Playback {
  /**
   * @param {{nodes: {name: string, gpus: number}[]}} run
   * @param {Columns} bars by their start
   * @param {Columns} waits by their beginning
   * @param {Columns} events by their time
   * @param {number} jobs how many
   * @param {ArrayLike<number>} submits when
   * @param {ArrayLike<number>} ends when; NaN: never
   */
  constructor(run, bars, waits, events, jobs, submits, ends) {
    this.run = run;
    this.bars = bars;
    this.waits = waits;
    this.events = events;
    this.submits = submits;
    this.finished = Float64Array.from(ends).filter((at) => at >= 0).sort();
    let first = 0;
    this.firsts = run.nodes.map((node) => (first += node.gpus) - node.gpus);
    /** Who has each GPU: the number of a job from 1 on, 0 nobody. */
    this.owners = new Int32Array(first);
    /** Is it being started, stopped or moved? */
    this.taking = new Uint8Array(first);
    /** @type {Map<number, number[]>} GPUs that jobs share: numbers of bars, in the order of their parts */
    this.shared = new Map();
    this.running = new Int32Array(jobs);
    this.ends = order(bars.start, bars.length);
    this.waitEnds = order(waits.from, waits.length);
    /** @type {Set<number>} numbers of waits */
    this.waiting = new Set();
    this.busy = 0; // GPUs
    this.active = 0; // jobs
    this.at = -Infinity;
    this.next = [0, 0, 0, 0]; // of bars, ends of bars, waits, ends of waits
    /** @type {Set<number> | null} GPUs that changed; null: all */
    this.changed = null;
    this.steps = 0; // for measurements
  }

  /** Whole GPUs that a job has at this moment: an elastic one has others than it asked for. @param {number} job */
  held(job) {
    let count = 0;
    for (const owner of this.owners) count += owner === job + 1 ? 1 : 0;
    return count;
  }

  /** @param {number} i @param {boolean} begins */
  take(i, begins) {
    const { bars } = this;
    const job = bars.job[i];
    const place = this.firsts[bars.node[i]] + Math.floor(bars.lane[i] + 1e-6);
    const count = Math.max(1, Math.ceil(bars.lanes[i] - 1e-6));
    if (bars.lanes[i] > 1 - 1e-6) this.busy += begins ? bars.lanes[i] : -bars.lanes[i];
    else this.share(i, place, begins);
    if (begins ? !this.running[job]++ : !--this.running[job]) this.active += begins ? 1 : -1;
    this.steps += 1;
    if (bars.lanes[i] <= 1 - 1e-6) return;
    for (let at = place; at < Math.min(place + count, this.owners.length); at += 1) {
      if (!begins && this.owners[at] !== job + 1) continue;
      this.owners[at] = begins ? job + 1 : 0;
      this.taking[at] = begins ? bars.overhead[i] : 0;
      this.changed?.add(at);
    }
  }

  /** A job begins or ends to have a part of a GPU. @param {number} i @param {number} place @param {boolean} begins */
  share(i, place, begins) {
    const { bars } = this;
    const before = this.shared.get(place) || [];
    const parts = begins ? [...before, i].sort((a, b) => bars.lane[a] - bars.lane[b] || a - b) : before.filter((each) => each !== i);
    const used = (/** @type {number[]} */ list) => Math.min(1, list.reduce((sum, each) => sum + bars.gpus[each], 0));
    this.busy += used(parts) - used(before);
    if (parts.length) this.shared.set(place, parts);
    else this.shared.delete(place);
    this.owners[place] = parts.length ? bars.job[parts[0]] + 1 : 0;
    this.taking[place] = parts.length ? bars.overhead[parts[0]] : 0;
    this.changed?.add(place);
  }

  /** Show this moment. @param {number} at */
  seek(at) {
    if (at < this.at) this.rewind();
    const { bars, waits, next } = this;
    for (;;) {
      const begins = next[0] < bars.job.length ? bars.start[next[0]] : Infinity;
      const end = next[1] < this.ends.length ? this.ends[next[1]] : -1;
      const ended = end < 0 ? Infinity : bars.start[end] + bars.length[end];
      if (Math.min(begins, ended) > at) break;
      if (ended <= begins) {
        next[1] += 1;
        this.take(end, false);
      } else this.take(next[0]++, true);
    }
    for (; next[2] < waits.job.length && waits.from[next[2]] <= at; next[2] += 1) this.waiting.add(next[2]);
    for (; next[3] < this.waitEnds.length; next[3] += 1) {
      const i = this.waitEnds[next[3]];
      if (waits.from[i] + waits.length[i] > at) break;
      this.waiting.delete(i);
    }
    this.at = at;
  }

  rewind() {
    this.owners.fill(0);
    this.taking.fill(0);
    this.shared.clear();
    this.running.fill(0);
    this.waiting.clear();
    this.busy = this.active = 0;
    this.next = [0, 0, 0, 0];
    this.at = -Infinity;
    this.changed = null;
  }

  /** GPUs that changed since the last question; null: all. */
  changes() {
    const found = this.changed;
    this.changed = new Set();
    return found;
  }

  /** Numbers of waits, by the submission of their jobs; each job once. */
  line() {
    /** @type {Map<number, number>} */
    const found = new Map();
    for (const i of this.waiting) found.set(this.waits.job[i], i);
    return [...found.values()].sort((a, b) => this.submits[this.waits.job[a]] - this.submits[this.waits.job[b]] || this.waits.job[a] - this.waits.job[b]);
  }

  /** How many jobs are over. */
  over() {
    return lastBefore(this.finished, this.at) + 1;
  }

  /** Numbers of the latest events, the last first. @param {number} count */
  latest(count) {
    const last = lastBefore(this.events.time, this.at);
    return Array.from({ length: Math.max(0, Math.min(count, last + 1)) }, (_, i) => last - i);
  }

  /** Nodes on which a job begins at a moment. @param {number} job @param {number} at @returns {number[]} */
  nodesAt(job, at) {
    const found = new Set();
    for (let i = lastBefore(this.bars.start, at + 0.002); i >= 0 && this.bars.start[i] > at - 0.002; i -= 1) if (this.bars.job[i] === job) found.add(this.bars.node[i]);
    return [...found].sort((a, b) => a - b);
  }

  /** When something is decided next; null: never. @param {number} at */
  nextEvent(at) {
    const i = lastBefore(this.events.time, at) + 1;
    return i < this.events.time.length ? this.events.time[i] : null;
  }
}

/**
 * Numbers by their ends.
 * @param {ArrayLike<number>} starts
 * @param {ArrayLike<number>} lengths
 */
function order(starts, lengths) {
  return Uint32Array.from({ length: starts.length }, (_, i) => i).sort((a, b) => starts[a] + lengths[a] - starts[b] - lengths[b] || a - b);
}
