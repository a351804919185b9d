// @ts-check
/** GPUs in use over time, by queue, from the bars of the timeline. */

import { isDark } from "./colours.js";

const OTHERS = "others";

/**
 * @param {{now: number, bars: {queue?: string, nodes: Record<string, number>, began_at: number, ended_at?: number | null}[]}} lanes
 * @param {number} since
 * @param {import("./colours.js").Palette} palette
 * @returns {{series: import("./chart.js").Series[], total: number}} `total`: the most at any time
 */
export function useOverTime(lanes, since, palette) {
  /** @type {Map<string, [number, number][]>} changes by queue */
  const changes = new Map();
  for (const bar of lanes.bars) {
    const queue = bar.queue ?? OTHERS;
    const gpus = Object.values(bar.nodes).reduce((sum, each) => sum + each, 0);
    const list = changes.get(queue) || changes.set(queue, []).get(queue);
    list?.push([Math.max(since, bar.began_at), gpus]);
    if (bar.ended_at) list?.push([Math.max(since, bar.ended_at), -gpus]);
  }
  /** @type {import("./chart.js").Series[]} */
  const series = [];
  /** @type {[number, number][]} */
  const all = [];
  for (const name of [...changes.keys()].sort()) {
    const list = /** @type {[number, number][]} */ (changes.get(name)).sort((a, b) => a[0] - b[0]);
    all.push(...list);
    const colour = name === OTHERS ? (isDark() ? "#5b6472" : "#aab3c0") : palette.colour(name || "default");
    series.push({ name: name || "default", colour, points: sums(list) });
  }
  const total = sums(all.sort((a, b) => a[0] - b[0])).reduce((most, [, value]) => Math.max(most, value), 0);
  return { series, total };
}

/** @param {[number, number][]} changes @returns {[number, number][]} */
function sums(changes) {
  /** @type {[number, number][]} */
  const points = [];
  let value = 0;
  for (const [at, change] of changes) {
    value = Math.max(0, Math.round((value + change) * 1e6) / 1e6);
    if (points.length && points[points.length - 1][0] === at) points[points.length - 1][1] = value;
    else points.push([at, value]);
  }
  return points;
}
