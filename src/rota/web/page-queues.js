// @ts-check
/** Queues: what they are guaranteed, use, borrow and ask for, and how that went over time. */

import { get } from "./api.js";
import { TimeChart } from "./chart.js";
import { fill, h } from "./dom.js";
import { number } from "./format.js";
import { card, heading, table } from "./page.js";
import { firstTime, swatch } from "./page-overview.js";
import { useOverTime } from "./use.js";

const SPANS = /** @type {[string, number][]} */ ([["1 h", 3600], ["6 h", 21600], ["1 day", 86400], ["7 days", 604800]]);

/**
 * Queues as a tree, parents before their parts.
 * @param {any[]} queues
 * @returns {{queue: any, depth: number}[]}
 */
export function asTree(queues) {
  /** @type {{queue: any, depth: number}[]} */
  const out = [];
  const add = (/** @type {string} */ parent, /** @type {number} */ depth) => {
    for (const queue of queues.filter((each) => (each.parent || "") === parent && each.name !== parent)) {
      out.push({ queue, depth });
      if (depth < 20) add(queue.name, depth + 1);
    }
  };
  add("", 0);
  for (const queue of queues) if (!out.some((each) => each.queue === queue)) out.push({ queue, depth: 0 });
  return out;
}

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function queues(context) {
  let span = 21600;
  const body = h("div");
  const findings = h("section.card", { hidden: true });
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
  const legend = h("div.legend");
  const chart = new TimeChart(canvas, { height: 220, step: true, about: "GPUs in use by queue", least: 0 });
  context.leave(() => chart.close());
  const look = async () => {
    try {
      const [found, lanes] = await Promise.all([get("/queues"), get("/lanes", { since: Math.max(0, context.now() - span).toFixed(0) })]);
      fill(body, found.length ? table(["Queue", "In use", ">GPUs", ">Guaranteed", ">Borrowed", ">Limit", ">Weight", ">Running", ">Waiting", ">Asked for", ">Held"], asTree(found).map(({ queue, depth }) => {
        const indent = h("span", {}, swatch(context.queues.colour(queue.name || "default")), h("a", { href: `#/jobs?queue=${encodeURIComponent(queue.name)}&user=&active=true` }, queue.name || "default"));
        indent.style.paddingLeft = `${depth * 18}px`;
        return [indent, useBar(queue, context), number(queue.gpus), queue.quota ? number(queue.quota) : "–", queue.quota ? number(Math.max(0, queue.gpus - queue.quota)) : "–",
          queue.limit === null || queue.limit === undefined ? "none" : number(queue.limit), number(queue.weight), number(queue.running), number(queue.pending), number(queue.asked_gpus), number(queue.held)];
      }), "Queues") : h("p.empty", {}, "No queue is declared, and no job is here."));
      const { series, total } = useOverTime(lanes, context.now() - span, context.queues);
      chart.set(series, firstTime(lanes, context.now() - span), context.now(), total);
      fill(legend, series.map((one) => h("span", {}, swatch(one.colour), one.name)));
    } catch (error) {
      context.fail(error);
    }
  };
  look();
  context.every(4000, look);
  const inspect = async () => {
    const found = await get("/audit/queues");
    findings.hidden = !found.length;
    fill(findings, h("h2", {}, "What to look at"), h("ul.parts", {}, found.map((/** @type {any} */ each) => h("li", {}, h("b", {}, `${each.subject}: `), each.text, each.remedy && h("span.quiet", {}, ` ${each.remedy}`)))));
  };
  if (context.can("operator")) {
    inspect().catch(context.fail);
    context.every(30000, () => inspect().catch(context.fail));
  }
  const spans = h("div.tabs", { role: "group", "aria-label": "Time" });
  const drawSpans = () => fill(spans, SPANS.map(([text, seconds]) => h("button", { type: "button", "aria-pressed": String(seconds === span), onclick: () => {
    span = seconds;
    drawSpans();
    look();
  } }, text)));
  drawSpans();
  return {
    title: "Queues",
    node: h("div", {}, heading("Queues"), card("Now", body), findings, card("GPUs in use over time", spans, h("div.figure", {}, canvas), legend),
      h("p.quiet", {}, "Guaranteed: what a queue always gets when it asks for it. Borrowed: what it uses beyond that, while others do not need it. Weight: how what is left is shared.")),
  };
}

/** @param {any} queue @param {import("./page.js").Context} context */
function useBar(queue, context) {
  const most = Math.max(queue.quota, queue.gpus, queue.limit || 0, 1);
  const inner = h("div");
  inner.style.width = `${(100 * queue.gpus) / most}%`;
  inner.style.background = context.queues.colour(queue.name || "default");
  const mark = queue.quota > 0 ? h("i.mark") : null;
  if (mark) mark.style.left = `${(100 * queue.quota) / most}%`;
  return h("div.bar.use", { role: "img", "aria-label": `${number(queue.gpus)} GPUs in use, ${number(queue.quota)} guaranteed` }, inner, mark);
}
