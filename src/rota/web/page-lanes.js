// @ts-check
/** Who had which GPUs when. */

import { get } from "./api.js";
import { hueOf, isDark } from "./colours.js";
import { fill, h } from "./dom.js";
import { clock, duration, plural } from "./format.js";
import { LaneChart } from "./lanes.js";
import { button, card, heading } from "./page.js";
import { swatch } from "./page-overview.js";

const SPANS = /** @type {[string, number][]} */ ([["10 min", 600], ["1 h", 3600], ["6 h", 21600], ["1 day", 86400], ["7 days", 604800]]);
const ENDS = /** @type {Record<string, string>} */ ({ stop: "preempted", done: "done", failed: "failed", cancelled: "cancelled", evicted: "its node failed", timeout: "its time limit ended it", move: "moved" });

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function lanes(context) {
  const { query } = context;
  let way = query.get("by") || "queue";
  let from = Number(query.get("from")) || 0;
  let to = Number(query.get("to")) || 0;
  let follows = !(from && to);
  let span = 0; // not chosen yet: as far back as there is something
  /** @type {any} */
  let data = null;
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { role: "application", "aria-label": "Timeline of the nodes: plus and minus zoom, arrow keys move, 0 shows everything." }));
  const legend = h("div.legend");
  const told = h("p.quiet");
  const chart = new LaneChart(canvas, {
    height: 620,
    describe: (bar) => {
      const one = data.bars[Number(bar.key)];
      const end = one.ended_at ?? context.now();
      return [`job ${one.job}${one.name ? ` ${one.name}` : ""}${one.user ? ` of ${one.user}` : ""}`, one.queue !== undefined && `queue ${one.queue || "default"}`,
        `${Object.entries(one.nodes).map(([name, gpus]) => `${name}: ${plural(Number(gpus), "GPU")}`).join(", ")}`,
        `${clock(one.began_at)} to ${one.ended_at ? `${clock(end)}, ${ENDS[one.end] || one.end}` : "now"} (${duration(end - one.began_at)})`].filter(Boolean).join("\n");
    },
    pick: (bar) => context.go(`#/jobs/${data.bars[Number(bar.key)].job}`),
    moved: (a, b) => {
      [from, to] = [a, b];
      context.remember({ by: way === "queue" ? "" : way, from: follows ? "" : from.toFixed(0), to: follows ? "" : to.toFixed(0) });
    },
  });
  context.leave(() => chart.close());
  canvas.addEventListener("pointerdown", () => (follows = false));
  canvas.addEventListener("wheel", (event) => (follows &&= !(event.ctrlKey || event.shiftKey)));
  canvas.addEventListener("keydown", () => (follows = false));
  const colour = (/** @type {any} */ bar) => {
    if (way === "job") return hueOf(Number(bar.job));
    if (bar.user === undefined) return isDark() ? "#5b6472" : "#aab3c0";
    if (way === "mine") return bar.user === context.me.name ? hueOf(Number(bar.job)) : isDark() ? "#5b6472" : "#aab3c0";
    return context.queues.colour(bar.queue || "default");
  };
  const draw = () => {
    if (!data) return;
    const nodes = context.live.board.nodes;
    const places = new Map(nodes.map((node, i) => [node.name, i]));
    const bars = data.bars.flatMap((/** @type {any} */ bar, /** @type {number} */ key) => Object.entries(bar.nodes).filter(([name]) => places.has(name)).map(([name, gpus]) => ({
      lane: places.get(name), rows: gpus, from: bar.began_at, to: bar.ended_at ?? null, key: String(key), fill: colour(bar), label: bar.name || bar.job, end: bar.end,
    })));
    chart.set(nodes.map((node) => ({ name: node.name, rows: node.gpus })), bars, context.now());
    if (follows) chart.show(context.now() - span, context.now() + span * 0.02);
    else chart.show(from, to);
    fill(told, `${plural(data.bars.length, "run")} since ${clock(data.since || data.bars[0]?.began_at, context.now())}.`);
    const names = [...new Set(data.bars.map((/** @type {any} */ bar) => bar.queue).filter((/** @type {any} */ each) => each !== undefined))].sort();
    fill(legend, way === "queue" ? names.map((name) => h("span", {}, swatch(context.queues.colour(String(name) || "default")), String(name) || "default")) : h("span", {}, way === "job" ? "every job has a colour of its own" : "jobs of others are grey"));
  };
  const load = async () => {
    const since = follows ? context.now() - (span || 21600) : from - (to - from);
    data = await get("/lanes", { since: Math.max(0, since).toFixed(0) });
    if (!span) {
      const oldest = context.now() - data.bars.reduce((/** @type {number} */ least, /** @type {any} */ bar) => Math.min(least, bar.began_at), context.now());
      span = (SPANS.find(([, seconds]) => seconds >= oldest) || SPANS[2])[1];
    }
    draw();
  };
  const show = (/** @type {number} */ seconds) => async () => {
    follows = true;
    span = seconds;
    await load();
  };
  const tabs = h("div.tabs", { role: "group", "aria-label": "Colour by" });
  const drawTabs = () => fill(tabs, [["queue", "Queue"], ["job", "Job"], ["mine", "Mine"]].map(([key, title]) => h("button", { type: "button", "aria-pressed": String(key === way), onclick: () => {
    way = key;
    drawTabs();
    draw();
  } }, title)));
  drawTabs();
  load().catch(context.fail);
  context.every(4000, () => load().catch(context.fail));
  const zoom = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ factor) => h("button", { type: "button", "aria-label": label, onclick: () => {
    follows = false;
    chart.zoom(factor);
  } }, text);
  const node = h("div", {}, heading("Timeline"),
    h("div.filters", {}, h("div.tabs", { role: "group", "aria-label": "Time" }, SPANS.map(([text, seconds]) => button(text, show(seconds), context.fail))), zoom("−", "Zoom out", 2), zoom("+", "Zoom in", 0.5), h("span.quiet", {}, "Colour by"), tabs),
    card("Who had which GPUs", told, legend, h("div.figure.tall", { tabindex: "-1" }, canvas)),
    h("p.quiet", {}, "Drag to move, drag on the axis to choose a time, ctrl and the wheel to zoom. A dark end: the job was preempted, failed or was cancelled."));
  Object.assign(window, { rotaLanes: chart }); // for measurements
  return { title: "Timeline", node };
}
