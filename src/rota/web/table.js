// @ts-check
/** A table of which only the rows on the screen exist; pieces of it are asked for as needed. */

import { fill, h, say } from "./dom.js";
import { plural } from "./format.js";

/** @typedef {{total: number, jobs: any[]}} Page */
/** @typedef {{key: string, title: string, sort?: string, kind?: string, cell: (row: any) => import("./dom.js").Child | import("./dom.js").Child[]}} Column */

const PIECE = 100;
const SPARE = 8; // rows above and below

/** Sorted by its heads; works with the keyboard, and with screen readers by rows and columns. */
export class LongTable {
  /**
   * @param {Column[]} columns
   * @param {{load: (query: {offset: number, limit: number, sort: string, rising: boolean}, signal: AbortSignal) => Promise<Page>, open: (row: any) => string, sort: string, rising: boolean, sorted?: (sort: string, rising: boolean) => void, what: string, empty: string, failed: (error: unknown) => void}} options
   */
  constructor(columns, options) {
    this.columns = columns;
    this.options = options;
    this.sort = options.sort;
    this.rising = options.rising;
    this.total = 0;
    /** @type {Map<number, any[]>} by number of the piece */
    this.pieces = new Map();
    /** @type {Set<number>} */
    this.wanted = new Set();
    this.round = new AbortController();
    this.head = h("div.row.head", { role: "row" });
    this.rows = h("div.rows", { role: "rowgroup" });
    this.space = h("div.space");
    this.view = h("div.view", {}, h("div.heads", { role: "rowgroup" }, this.head), this.space, this.rows);
    this.table = h("div.grid", { role: "table", "aria-label": options.what }, this.view);
    this.count = h("p.quiet.count", { role: "status" });
    this.empty = h("p.empty", { hidden: true }, options.empty);
    this.node = h("div.long", {}, this.count, this.table, this.empty);
    this.view.addEventListener("scroll", () => this.draw());
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.view);
    this.heads();
  }

  close() {
    this.observer.disconnect();
    this.round.abort();
  }

  heads() {
    fill(this.head, this.columns.map((column) => {
      const sorted = column.sort === this.sort;
      const order = sorted ? (this.rising ? "ascending" : "descending") : "none";
      const sign = sorted ? (this.rising ? " ↑" : " ↓") : "";
      return h(`div.cell.${column.kind || "text"}`, { role: "columnheader", "aria-sort": column.sort ? order : null, "data-key": column.key },
        column.sort ? h("button.plain", { onclick: () => this.sortBy(/** @type {string} */ (column.sort)) }, column.title + sign) : column.title);
    }));
  }

  /** @param {string} sort */
  sortBy(sort) {
    this.rising = sort === this.sort ? !this.rising : !["id", "submitted", "started", "ended", "gpus", "run"].includes(sort);
    this.sort = sort;
    this.options.sorted?.(this.sort, this.rising);
    this.heads();
    this.view.scrollTop = 0;
    this.restart();
  }

  /** Everything may be different now. */
  restart() {
    this.pieces.clear();
    return this.refresh();
  }

  /** Ask again for what is on the screen; what is shown stays until the answer is here. */
  async refresh() {
    this.round.abort();
    this.round = new AbortController();
    this.wanted.clear();
    const [first, last] = this.visible();
    const from = Math.floor(first / PIECE);
    const needed = new Set([from, Math.floor(last / PIECE)]);
    for (const piece of this.pieces.keys()) if (!needed.has(piece)) this.pieces.delete(piece);
    await Promise.all([...needed].map((piece) => this.fetch(piece)));
  }

  /** @param {number} piece */
  async fetch(piece) {
    if (this.wanted.has(piece)) return;
    this.wanted.add(piece);
    const round = this.round;
    try {
      const page = await this.options.load({ offset: piece * PIECE, limit: PIECE, sort: this.sort, rising: this.rising }, round.signal);
      if (round.signal.aborted) return;
      this.total = page.total;
      this.pieces.set(piece, page.jobs);
      this.draw();
    } catch (error) {
      if (!round.signal.aborted) this.options.failed(error);
    } finally {
      if (round === this.round) this.wanted.delete(piece);
    }
  }

  get high() {
    return this.view.clientWidth < 640 ? 66 : 42;
  }

  /** @returns {[number, number]} the first and the last row on the screen */
  visible() {
    const first = Math.floor(this.view.scrollTop / this.high);
    return [Math.max(0, first - SPARE), first + Math.ceil((this.view.clientHeight || 600) / this.high) + SPARE];
  }

  draw() {
    const [first, wanted] = this.visible();
    const last = Math.min(this.total, wanted);
    this.space.style.height = `${this.total * this.high}px`;
    this.rows.style.transform = `translateY(${first * this.high}px)`;
    this.table.setAttribute("aria-rowcount", String(this.total + 1));
    say(this.count, plural(this.total, "job"));
    this.empty.hidden = this.total > 0 || !this.pieces.size;
    this.view.classList.toggle("none", !this.total);
    const focused = /** @type {HTMLElement | null} */ (this.rows.contains(document.activeElement) ? document.activeElement : null)?.dataset.id;
    const made = [];
    for (let at = first; at < last; at += 1) {
      const row = this.pieces.get(Math.floor(at / PIECE))?.[at % PIECE];
      if (row === undefined) this.fetch(Math.floor(at / PIECE));
      made.push(this.row(row, at));
    }
    fill(this.rows, made);
    if (focused) /** @type {HTMLElement | null} */ (this.rows.querySelector(`[data-id="${focused}"]`))?.focus({ preventScroll: true });
  }

  /** @param {any} row @param {number} at */
  row(row, at) {
    const cells = this.columns.map((column, place) => {
      const inside = row === undefined ? (place ? "" : "…") : column.cell(row);
      return h(`div.cell.${column.kind || "text"}`, { role: "cell", "data-key": column.key }, ...(Array.isArray(inside) ? inside : [inside]));
    });
    return h("div.row", { role: "row", "aria-rowindex": at + 2 }, cells);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const links = [...this.rows.querySelectorAll("a")];
    const at = links.indexOf(/** @type {any} */ (document.activeElement));
    const step = event.key === "ArrowDown" || event.key === "j" ? 1 : event.key === "ArrowUp" || event.key === "k" ? -1 : 0;
    if (!step || !links.length) return;
    links[Math.max(0, Math.min(links.length - 1, at + step))].focus();
    event.preventDefault();
  }
}
