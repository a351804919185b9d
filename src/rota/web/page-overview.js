// @ts-check
/** The cluster in four numbers, what needs attention, and one's own jobs. */

import { get } from "./api.js";
import { TimeChart } from "./chart.js";
import { fill, h } from "./dom.js";
import { duration, number, percent, plural } from "./format.js";
import { card, chip, heading, jobLink, table, tile } from "./page.js";
import { useOverTime } from "./use.js";

const HOURS = 6;

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function overview(context) {
  const { live, fail } = context;
  const tiles = h("div.tiles", { "aria-live": "off" }, ...[1, 2, 3, 4].map(() => tile("…", "–", "")));
  const alerts = h("div.alerts");
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
  const legend = h("div.legend");
  const mine = h("div");
  const licences = h("div");
  const own = context.me.role === "viewer" ? "" : context.me.name;
  const node = h("div", {}, heading("Overview"), tiles, alerts,
    card(`GPUs in use, the last ${HOURS} hours`, h("div.figure", {}, canvas), legend),
    licences, card(own ? "Your latest jobs" : "The latest jobs", mine));
  const chart = new TimeChart(canvas, { height: 190, stacked: true, about: "GPUs in use by queue" });
  context.leave(() => chart.close());

  context.changed(() => {
    const { counts, nodes } = live.board;
    const { used, total } = live.board.use;
    const bad = nodes.filter((each) => each.state === "down" || each.state === "silent").length;
    const out = nodes.filter((each) => each.state === "draining" || each.state === "drained").length;
    fill(tiles,
      tile("GPUs in use", total ? percent(used / total) : "–", `${number(used)} of ${number(total)}`, total ? used / total : 0),
      tile("Running", number(counts.running), counts.running === 1 ? "job" : "jobs"),
      tile("Waiting", number(counts.waiting), counts.waiting ? `${number(counts.asked)} GPUs asked for; the longest for ${duration(counts.longest_s)}` : "nobody waits"),
      tile("Nodes", number(nodes.length - bad - out), `of ${number(nodes.length)} ready${bad ? `; ${bad} not there` : ""}${out ? `; ${out} drained` : ""}`));
  });

  const look = async () => {
    try {
      const [status, nodes, lanes, found] = await Promise.all([
        get("/status"), get("/nodes"), get("/lanes", { since: Math.max(0, context.now() - HOURS * 3600) }),
        get("/find/jobs", { user: own, limit: 8 }),
      ]);
      const problems = troubles(status, nodes);
      fill(alerts, problems.map((each) => h("p.alert", {}, h("b", {}, "! "), each)));
      const { series, total } = useOverTime(lanes, context.now() - HOURS * 3600, context.queues);
      chart.set(series, firstTime(lanes, context.now() - HOURS * 3600), context.now(), Math.max(total, status.gpus?.total || 0));
      const rows = licenceRows(status.licences || {});
      fill(licences, ...(rows.length ? [card("Licences", table(["Licence", ">In use", ">Of", ">Asked for", "Waiting for it"], rows, "Licences of the whole cluster"))] : []));
      fill(legend, series.map((one) => h("span", {}, swatch(one.colour), one.name)));
      fill(mine, found.jobs.length
        ? table(["Job", "State", ">GPUs", "Queue", "Since"], found.jobs.map((/** @type {any} */ job) => [
          jobLink(job.id, job.name), chip(job.state), number(job.gpus), job.queue || "default",
          duration(context.now() - (job.ended_at || job.started_at || job.submitted_at)),
        ]), own ? "Your latest jobs" : "The latest jobs")
        : h("p.empty", {}, own ? "You have no jobs yet. " : "There are no jobs yet. ", context.can("user") && h("a", { href: "#/submit" }, "Submit one")));
    } catch (error) {
      fail(error);
    }
  };
  look();
  context.every(5000, look);
  return { title: "Overview", node };
}

/**
 * Where a chart of the past begins: not long before anything happened.
 * @param {{now: number, bars: {began_at: number}[]}} lanes
 * @param {number} since
 */
export function firstTime(lanes, since) {
  const first = lanes.bars.reduce((least, bar) => Math.min(least, bar.began_at), lanes.now - 300);
  return Math.max(since, first - (lanes.now - first) * 0.03);
}

/**
 * Licences of the whole cluster: who has how many, and who waits.
 * @param {Record<string, {total: number, used: number, spent: number, asked: number, waiting: string[]}>} licences
 * @returns {any[][]}
 */
export function licenceRows(licences) {
  return Object.entries(licences).map(([name, use]) => [
    name, number(use.used), use.spent ? `${number(use.total)} (${number(use.spent)} used up)` : number(use.total),
    number(use.asked), use.waiting.length ? h("span", {}, ...use.waiting.flatMap((id) => [jobLink(id, ""), " "])) : "nobody",
  ]);
}

/** @param {string} colour */
export function swatch(colour) {
  const made = h("i.swatch");
  made.style.background = colour;
  return made;
}

/**
 * What somebody should look at, in sentences.
 * @param {any} status
 * @param {any[]} nodes
 * @returns {string[]}
 */
export function troubles(status, nodes) {
  const found = [];
  for (const state of ["down", "silent"]) {
    const those = nodes.filter((node) => node.state === state);
    if (those.length) {
      const names = those.slice(0, 3).map((node) => (node.why ? `${node.name} (${node.why})` : node.name)).join(", ");
      found.push(`${plural(those.length, "node")} ${state === "down" ? "down" : "not heard of"}: ${names}${those.length > 3 ? ", …" : ""}`);
    }
  }
  if (status.journal_lag_s > 5) found.push(`The store is slow: the oldest input waits since ${duration(status.journal_lag_s)}.`);
  const p99 = status.decision_s?.p99;
  if (p99 > 1) found.push(`Decisions are slow: one in a hundred takes ${duration(p99)} or longer.`);
  return found;
}
