// @ts-check
/** Why a job waited, in words and as a strip over its life. */

import { h } from "./dom.js";
import { lasting, REASONS } from "./format.js";

/**
 * The parts of a wait, the longest first.
 * @param {Record<string, ArrayLike<number>>} fates columns by name; reasons among them
 * @param {number} job
 * @returns {[string, number][]}
 */
export function waits(fates, job) {
  return Object.keys(REASONS).filter((reason) => fates[reason]?.[job] > 0)
    .map((reason) => /** @type {[string, number]} */ ([reason, fates[reason][job]])).sort((a, b) => b[1] - a[1]);
}

/**
 * In a sentence: `waited 4h 02m: others were served first (3h 10m), ...`.
 * @param {[string, number][]} parts
 * @param {number} stops
 */
export function sentence(parts, stops) {
  const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (whole < 0.5) return "did not wait";
  const told = parts.map(([reason, seconds]) => `${REASONS[reason]} (${lasting(seconds)})`);
  const stopped = stops ? `; stopped ${stops === 1 ? "once" : `${stops} times`} for others` : "";
  return `waited ${lasting(whole)}: ${told.join(", ")}${stopped}`;
}

/**
 * The life of a job as a strip: waiting is pale, running has a colour.
 * @param {[number, number, boolean][]} runs from, to, overhead
 * @param {number} from
 * @param {number | null} to its end
 * @param {number} until the end of the axis
 * @param {string} colour
 */
export function lifeStrip(runs, from, to, until, colour) {
  const whole = Math.max(until - from, 1e-9);
  const place = (/** @type {number} */ at) => `${(100 * (at - from)) / whole}%`;
  const life = h("i.life");
  life.style.width = place(to ?? until);
  const pieces = runs.map(([begin, end, overhead]) => {
    const piece = h(overhead ? "i.taking" : "i.running");
    piece.style.left = place(begin);
    piece.style.width = `${Math.max(0.3, (100 * (end - begin)) / whole)}%`;
    if (!overhead) piece.style.background = colour;
    return piece;
  });
  return h("span.strip-of-life", { "aria-hidden": "true" }, life, pieces);
}
