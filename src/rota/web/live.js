// @ts-check
/** One stream for the whole page; it ends while nobody looks, and comes back by itself. */

import { Board } from "./board.js";
import { get, PREFIX, ApiError } from "./api.js";
import { resume } from "./keys.js";

const AGAIN_MS = 1500;

/** `change` (detail: places or null) and `status` (detail: live, waiting or stranger). */
export class Live extends EventTarget {
  constructor() {
    super();
    this.board = new Board();
    this.status = "waiting";
    this.messages = 0;
    this.bytes = 0;
    this.largest = 0;
    /** @type {EventSource | null} */
    this.source = null;
    /** @type {number | undefined} */
    this.timer = undefined;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
  }

  open() {
    if (this.source || document.hidden) return;
    clearTimeout(this.timer);
    const source = (this.source = new EventSource(`${PREFIX}/board`));
    for (const kind of /** @type {const} */ (["full", "delta"])) {
      source.addEventListener(kind, (event) => this.take(kind, /** @type {MessageEvent} */ (event).data));
    }
    source.onopen = () => this.tell("live");
    source.onerror = () => {
      if (source.readyState === EventSource.CONNECTING) this.tell("waiting"); // it resumes by itself
      else {
        this.close();
        this.retry();
      }
    };
  }

  close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
  }

  /** Is it the daemon that is away, or the session? */
  async retry() {
    this.tell("waiting");
    try {
      await get("/whoami");
      if (!document.hidden) this.open();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        if (await resume().catch(() => false)) return this.open();
        this.tell("stranger");
      }
      this.timer = window.setTimeout(() => this.retry(), AGAIN_MS);
    }
  }

  /**
   * @param {"full" | "delta"} kind
   * @param {string} text
   */
  take(kind, text) {
    this.messages += 1;
    this.bytes += text.length;
    if (kind === "delta") this.largest = Math.max(this.largest, text.length);
    const changed = this.board.take(kind, JSON.parse(text));
    this.tell("live");
    this.dispatchEvent(new CustomEvent("change", { detail: changed }));
  }

  /** @param {string} status */
  tell(status) {
    if (status === this.status) return;
    this.status = status;
    this.dispatchEvent(new CustomEvent("status", { detail: status }));
  }
}
