// @ts-check
/** What a job writes: both outputs, as they grow, with the colours of a terminal. */

import { ApiError, getBytes } from "./api.js";
import { Terminal } from "./ansi.js";
import { fill, h, say } from "./dom.js";
import { bytes } from "./format.js";

const TAIL = 256 * 1024;
const PIECE = 1024 * 1024;
const POLL_MS = 700;

/** A card with the output of a job. */
export class JobOutput {
  /**
   * @param {string} job
   * @param {(error: unknown) => void} fail
   */
  constructor(job, fail) {
    this.job = job;
    this.fail = fail;
    this.stream = "all";
    this.goesOn = true;
    this.closed = false;
    this.offset = 0;
    this.round = 0;
    this.idle = 0;
    this.terminal = new Terminal();
    this.screen = h("pre.screen", { tabindex: "0", role: "log", "aria-label": "Output of the job", "aria-live": "off" });
    this.note = h("span.quiet", { role: "status" });
    this.tabs = h("div.tabs", { role: "group", "aria-label": "Which output" });
    const wrap = h("label.check", {}, h("input", { type: "checkbox", checked: true, onchange: (/** @type {any} */ event) => this.screen.classList.toggle("wide", !event.target.checked) }), "Wrap lines");
    this.node = h("section.card", {}, h("h2", {}, "Output"), h("div.filters", {}, this.tabs, wrap, h("button", { type: "button", onclick: () => this.download() }, "Download"), this.note), this.screen);
    this.drawTabs();
  }

  drawTabs() {
    const names = /** @type {[string, string][]} */ ([["all", "Both"], ["out", "Output"], ["err", "Errors"]]);
    fill(this.tabs, names.map(([key, title]) => h("button", { type: "button", "aria-pressed": String(key === this.stream), onclick: () => this.choose(key) }, title)));
  }

  /** @param {string} stream */
  choose(stream) {
    this.stream = stream;
    this.drawTabs();
    this.start();
  }

  /** @param {boolean} goesOn */
  follow(goesOn) {
    if (goesOn === this.goesOn) return;
    this.goesOn = goesOn;
    this.idle = 0;
  }

  close() {
    this.closed = true;
    this.round += 1;
  }

  async start() {
    const round = (this.round += 1);
    this.terminal = new Terminal();
    this.offset = 0;
    this.idle = 0;
    fill(this.screen);
    try {
      await this.begin(round);
      while (round === this.round) {
        await this.more(round);
        if (!this.goesOn && this.idle > 1) break;
        await new Promise((next) => setTimeout(next, document.hidden ? 4 * POLL_MS : POLL_MS));
      }
    } catch (error) {
      if (round !== this.round) return;
      if (error instanceof ApiError && error.status === 404) say(this.note, error.message);
      else {
        this.fail(error);
        setTimeout(() => round === this.round && this.start(), 2000);
      }
    }
  }

  /** Begin near the end of a long output. @param {number} round */
  async begin(round) {
    const tail = await this.read(-TAIL, TAIL);
    if (tail.length < TAIL) {
      this.offset = tail.length;
      this.show(tail, round);
      return;
    }
    let low = TAIL;
    let high = 2 * TAIL;
    while ((await this.read(high, 1)).length) [low, high] = [high, 2 * high];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if ((await this.read(middle, 1)).length) low = middle;
      else high = middle;
    }
    this.offset = Math.max(0, low + 1 - TAIL);
    say(this.note, `The first ${bytes(this.offset)} are not shown: download them.`);
  }

  /** @param {number} offset @param {number} limit */
  async read(offset, limit) {
    try {
      return await getBytes(`/jobs/${this.job}/logs`, { stream: this.stream, offset: String(offset), limit });
    } catch (error) {
      if (error instanceof ApiError && error.status === 410) return new Uint8Array(0);
      throw error;
    }
  }

  /** @param {number} round */
  async more(round) {
    const data = await this.read(this.offset, PIECE);
    if (round !== this.round) return;
    this.idle = data.length ? 0 : this.idle + 1;
    this.offset += data.length;
    this.show(data, round);
  }

  /** @param {Uint8Array} data @param {number} round */
  show(data, round) {
    if (round !== this.round || (!data.length && this.screen.childNodes.length)) return;
    const atEnd = this.screen.scrollHeight - this.screen.scrollTop - this.screen.clientHeight < 30;
    const from = this.terminal.write(data);
    while (this.screen.childNodes.length > from) this.screen.lastChild?.remove();
    const made = document.createDocumentFragment();
    for (const line of this.terminal.lines.slice(from)) {
      made.appendChild(h("div", {}, line.length ? line.map((piece) => (piece.style ? h("span", { class: piece.style }, piece.text) : piece.text)) : "\u200b"));
    }
    this.screen.appendChild(made);
    if (!this.offset) fill(this.screen, h("div.quiet", {}, this.goesOn ? "Nothing yet." : "It wrote nothing."));
    if (atEnd) this.screen.scrollTop = this.screen.scrollHeight;
  }

  async download() {
    /** @type {BlobPart[]} */
    const pieces = [];
    let offset = 0;
    try {
      for (;;) {
        const data = await this.read(offset, PIECE);
        if (!data.length) break;
        pieces.push(data);
        offset += data.length;
      }
    } catch (error) {
      this.fail(error);
      return;
    }
    const url = URL.createObjectURL(new Blob(pieces, { type: "text/plain" }));
    h("a", { href: url, download: `job-${this.job}-${this.stream}.txt` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}
