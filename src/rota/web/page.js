// @ts-check
/** What every view of the page has in common. */

import { h, fill } from "./dom.js";
import { ApiError } from "./api.js";
import { copyText } from "./copy.js";
import { JOB_STATES, NODE_STATES, number } from "./format.js";

/** @typedef {{name: string, role: string}} Me */
/**
 * @typedef {object} Context what a view can use
 * @property {Me} me
 * @property {import("./live.js").Live} live
 * @property {string[]} rest what follows the name of the view in the address
 * @property {URLSearchParams} query
 * @property {import("./colours.js").Palette} queues colours of queues, the same in all views
 * @property {() => number} now Unix seconds, by the daemon's clock
 * @property {(role: string) => boolean} can
 * @property {(hash: string) => void} go
 * @property {(query: Record<string, string>) => void} remember put it into the address
 * @property {(error: unknown) => void} fail
 * @property {(text: string) => void} done
 * @property {(ms: number, act: () => unknown) => void} every as long as the view is shown
 * @property {(act: (places: number[] | null) => void) => void} changed called with every step of the board
 * @property {(act: () => void) => void} leave called when the view is left
 */
/** @typedef {{title: string, node: HTMLElement}} View */

const RANK = ["viewer", "user", "operator", "admin"];

/** @param {string} role @param {string} least */
export function isEnough(role, least) {
  return RANK.indexOf(role) >= RANK.indexOf(least);
}

/** @param {string} state */
export function chip(state) {
  const known = JOB_STATES[state] || NODE_STATES[state] || { word: state, sign: "", kind: "gone" };
  return h(`span.chip.${known.kind}`, {}, h("span", { "aria-hidden": "true" }, known.sign), ` ${known.word}`);
}

/**
 * A card with a heading.
 * @param {string} title
 * @param {...(import("./dom.js").Child | import("./dom.js").Child[])} children
 */
export function card(title, ...children) {
  return h("section.card", {}, h("h2", {}, title), ...children);
}

/**
 * @param {string} title
 * @param {...(import("./dom.js").Child | import("./dom.js").Child[])} more at the right
 */
export function heading(title, ...more) {
  return h("div.heading", {}, h("h1", {}, title), h("div.actions", {}, ...more));
}

/**
 * A number that matters, with what it means.
 * @param {string} label
 * @param {string} value
 * @param {string} note
 * @param {number | null} [share] a bar below it
 */
export function tile(label, value, note, share = null) {
  return h("div.tile", {}, h("div.label", {}, label), h("div.value", {}, value),
    share === null ? null : bar(share, label), h("div.note", {}, note));
}

/**
 * @param {number} share from 0 to 1
 * @param {string} label
 */
export function bar(share, label) {
  const inner = h("div");
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("div.bar", { role: "img", "aria-label": `${label}: ${Math.round(share * 100)} %` }, inner);
}

/**
 * A plain table.
 * @param {string[]} heads with a `>` before those of numbers
 * @param {(import("./dom.js").Child | import("./dom.js").Child[])[][]} rows
 * @param {string} [caption]
 */
export function table(heads, rows, caption = "") {
  const right = heads.map((head) => head.startsWith(">"));
  const kind = (/** @type {number} */ place) => (right[place] ? ".number" : "");
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": caption || heads.join(", ") }, h("table", {}, caption && h("caption", {}, caption),
    h("thead", {}, h("tr", {}, heads.map((head, i) => h(`th${kind(i)}`, { scope: "col" }, head.replace(">", ""))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h(`td${kind(i)}`, {}, ...(Array.isArray(cell) ? cell : [cell]))))))));
}

/**
 * A button that cannot be pressed twice, and says what went wrong.
 * @param {string} text
 * @param {() => Promise<unknown>} act
 * @param {(error: unknown) => void} fail
 * @param {string} [kind]
 */
export function button(text, act, fail, kind = "") {
  const made = /** @type {HTMLButtonElement} */ (h(`button${kind && `.${kind}`}`, { type: "button" }, text));
  made.addEventListener("click", async () => {
    made.disabled = true;
    try {
      await act();
    } catch (error) {
      fail(error);
    } finally {
      made.disabled = false;
    }
  });
  return made;
}

/**
 * Ask before something that cannot be taken back.
 * @param {string} question
 * @param {string} yes
 * @returns {Promise<boolean>}
 */
export function confirmed(question, yes) {
  return new Promise((answer) => {
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-label": question }));
    const close = (/** @type {boolean} */ value) => {
      dialog.close();
      dialog.remove();
      answer(value);
    };
    fill(dialog, h("p", {}, question), h("div.actions", {},
      h("button", { type: "button", onclick: () => close(false) }, "No"),
      h("button.danger", { type: "button", onclick: () => close(true) }, yes)));
    dialog.addEventListener("cancel", () => close(false));
    document.body.appendChild(dialog);
    dialog.showModal();
  });
}

/** @param {unknown} error */
export function words(error) {
  if (error instanceof ApiError) return error.text;
  return error instanceof Error ? error.message : String(error);
}

/**
 * A link to a job.
 * @param {string | number} id
 * @param {string} [name]
 */
export function jobLink(id, name = "") {
  return h("a", { href: `#/jobs/${id}` }, name ? `${id} ${name}` : String(id));
}

/** @param {number | null | undefined} value */
export function gpus(value) {
  return `${number(value)} ${value === 1 ? "GPU" : "GPUs"}`;
}

/**
 * Copy a text; the button says so.
 * @param {() => string} text
 * @param {string} label
 * @param {(error: unknown) => void} fail
 */
export function copyButton(text, label, fail) {
  const made = button(label, async () => {
    await copyText(text());
    made.textContent = "Copied";
    setTimeout(() => (made.textContent = label), 1500);
  }, fail);
  return made;
}
