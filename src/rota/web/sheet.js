// @ts-check
/** What all pages that are files can do: copy a command, sort a table, print what is folded. */

import { copyText } from "./copy.js";

/**
 * Sort the rows of a table by a column; numbers by their `data-value`, the rest by their text.
 * @param {HTMLTableElement} table
 * @param {number} column
 * @param {boolean} rising
 */
export function sortRows(table, column, rising) {
  const body = table.tBodies[0];
  const key = (/** @type {HTMLTableRowElement} */ row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent?.trim() || "" : Number(cell.dataset.value || "NaN");
  };
  const rows = [...body.rows].map((row) => ({ row, key: key(row) }));
  rows.sort((a, b) => compareKeys(a.key, b.key, rising));
  body.append(...rows.map((each) => each.row));
}

/**
 * @param {number | string} a
 * @param {number | string} b
 * @param {boolean} rising
 * @returns {number} what has no number is always last
 */
export function compareKeys(a, b, rising) {
  if (typeof a === "number" && typeof b === "number") {
    if (Number.isNaN(a) || Number.isNaN(b)) return Number(Number.isNaN(a)) - Number(Number.isNaN(b));
    return rising ? a - b : b - a;
  }
  const order = String(a).localeCompare(String(b), "en", { numeric: true });
  return rising ? order : -order;
}

/** @param {HTMLTableElement} table */
function sortable(table) {
  const heads = [...(table.tHead?.rows[0].cells || [])];
  heads.forEach((head, column) => {
    if (head.dataset.fixed !== undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const less = head.dataset.first !== "more"; // what is best comes first
      const rising = head.getAttribute("aria-sort") === (less ? "ascending" : "descending") ? !less : less;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      sortRows(table, column, rising);
    });
  });
}

/** Make the page do what it can. */
export function openSheet() {
  for (const table of document.querySelectorAll("table.sortable")) sortable(/** @type {HTMLTableElement} */ (table));
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("button[data-copy]"))) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const label = button.textContent;
      await copyText(document.getElementById(button.dataset.copy || "")?.textContent || "");
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = label), 1500);
    });
  }
  /** @type {HTMLDetailsElement[]} */
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [.../** @type {NodeListOf<HTMLDetailsElement>} */ (document.querySelectorAll("details:not([open])"))].filter((each) => each.dataset.print !== undefined);
    for (const each of opened) each.open = true;
    document.documentElement.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
    delete document.documentElement.dataset.theme;
  });
}

if (typeof document !== "undefined" && document.querySelector("main.sheet")) openSheet();
