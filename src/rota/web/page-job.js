// @ts-check
/** One job: what it does, why it waits, when it starts, what it writes and measures. */

import { ApiError, get, post } from "./api.js";
import { TimeChart } from "./chart.js";
import { fill, h, say } from "./dom.js";
import { clock, duration, moment, number, OVER, percent, plural, REASONS, secondOf } from "./format.js";
import { JobOutput } from "./output.js";
import { button, card, chip, confirmed, gpus, jobLink, words } from "./page.js";
import { asCommand } from "./command.js";
import { Palette } from "./colours.js";

const WAITS = new Set(["PENDING", "HELD"]);

/** What rows of the log mean for the owner of a job. @type {Record<string, (row: any) => string>} */
const STORY = {
  submit: () => "Submitted",
  held: () => "Held: it is not in the queue",
  admitted: () => "Let into the queue",
  start: (row) => (row.other === 1 ? "Started again" : "Started: its GPUs were given to it"),
  run: () => "Its command runs",
  stop: (row) => (row.other >= 0 ? `Stopped: job ${row.other} was served first` : `Stopped${row.text ? `: ${row.text}` : " on request"}`),
  stopped: () => "Its GPUs are free again",
  done: () => "Done",
  failed: (row) => `Failed${row.text ? `: ${row.text}` : ""}`,
  rejected: (row) => `Rejected${row.text ? `: ${row.text}` : ""}`,
  timeout: (row) => `Ended by its time limit${row.text ? `: ${row.text}` : ""}`,
  cancelled: (row) => `Cancelled${row.text ? ` by ${row.text}` : ""}`,
  evicted: (row) => `Lost its place${row.text ? `: ${row.text}` : ": its node failed"}`,
  move: () => "Moved to other GPUs",
};

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function job(context) {
  return new JobView(context).view();
}

class JobView {
  /** @param {import("./page.js").Context} context */
  constructor(context) {
    this.context = context;
    this.id = context.rest[0];
    /** @type {any} */
    this.job = null;
    this.row = 0;
    this.title = h("h1", {}, `Job ${this.id}`);
    this.state = h("span");
    this.actions = h("div.actions");
    this.facts = h("dl.facts");
    this.why = h("section.card.why", { hidden: true, "aria-live": "polite" });
    this.when = h("div.when");
    this.reason = h("div");
    this.story = h("ol.story");
    this.plots = h("section.card", { hidden: true }, h("h2", {}, "Measured"), (this.charts = h("div.charts")));
    this.submitted = h("section.card", { hidden: true });
    this.node = h("div", {}, h("div.heading", {}, h("div.titled", {}, this.title, this.state), this.actions), this.facts, this.why);
    fill(this.why, h("h2", {}, "Why it waits, and when it starts"), this.reason, this.when);
    /** @type {JobOutput | null} */
    this.output = null;
    /** @type {Map<string, {points: import("./chart.js").Point[], chart: TimeChart}>} */
    this.measures = new Map();
    this.palette = new Palette();
    this.asking = false;
    this.foreseen = 0;
  }

  view() {
    const { context } = this;
    this.look();
    let seen = -1;
    context.every(1000, () => {
      const busy = this.job && !OVER.has(this.job.state);
      if (context.live.board.events !== seen || (busy && Date.now() - this.looked > 5000)) {
        seen = context.live.board.events;
        this.look();
      }
    });
    context.leave(() => {
      this.output?.close();
      for (const { chart } of this.measures.values()) chart.close();
    });
    return { title: `Job ${this.id}`, node: this.node };
  }

  looked = 0;

  sampled = 0;

  async look() {
    if (this.asking) return;
    this.asking = true;
    this.looked = Date.now();
    try {
      this.job = await get(`/jobs/${this.id}`);
      this.draw();
      await Promise.all([this.follow(), this.ask(), this.measure()]);
    } catch (error) {
      if (!this.job && error instanceof ApiError && error.status) fill(this.node, h("p.empty", {}, words(error)));
      else this.context.fail(error);
    } finally {
      this.asking = false;
    }
  }

  draw() {
    const { job, context } = this;
    say(this.title, job.name ? `Job ${job.id}: ${job.name}` : `Job ${job.id}`);
    document.title = `Job ${job.id} ${job.name} · Rota`;
    fill(this.state, chip(job.state));
    const mine = job.user === context.me.name || context.can("operator");
    this.drawActions(mine && context.can("user"));
    const nodes = Object.entries(job.nodes).map(([name, count]) => `${name}: ${gpus(count)}`).join(", ");
    const now = context.now();
    const facts = [
      ["Owner", job.user], ["Queue", job.queue || "default"],
      ["Asks for", `${job.elastic ? `${job.elastic.min} to ${gpus(job.elastic.max)}` : gpus(job.gpus)}${job.gpu_type ? ` (${job.gpu_type})` : ""}`],
      ["Where", nodes || "–"],
      ["Submitted", moment(job.submitted_at)],
      ["Waited", duration((job.started_at || job.ended_at || now) - job.submitted_at)],
      ["Ran", job.started_at ? `${duration(job.run_s)}${job.estimate_s ? ` of about ${duration(job.estimate_s)}` : ""}` : "–"],
      ["GPU time", job.gpu_s ? `${duration(job.gpu_s)}` : "–"],
      job.used?.samples > 0 && ["Used", `${number(job.used.cpus_mean, 1)} CPUs, at most ${number(job.used.mem_peak_gib, 1)} GiB${typeof job.used.gpu_busy === "number" ? `, GPUs busy ${percent(job.used.gpu_busy)}` : ""}`],
      job.ended_at && ["Ended", moment(job.ended_at)],
      job.deadline_at && ["Wanted by", moment(job.deadline_at)],
      job.time_limit_s && ["Time limit", `${duration(job.time_limit_s)}, ${duration(Math.max(0, job.time_limit_s - job.run_s))} left`],
      job.preemptions > 0 && ["Preempted", plural(job.preemptions, "time")],
      job.priority !== 0 && ["Priority", String(job.priority)],
      job.group && ["Group", job.group],
      job.array && ["Array", h("a", { href: `#/jobs?array=${job.array}` }, `${job.task} of array ${job.array}`)],
      job.failures > 0 && ["Failed", `${plural(job.failures, "time")} of ${job.retries + 1}${job.retry_at ? `; again ${clock(job.retry_at, now)}` : ""}`],
    ].filter(Boolean);
    fill(this.facts, facts.map((/** @type {any} */ [name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    for (const text of job.used?.advice || []) this.facts.appendChild(h("div.advice", {}, h("dt", {}, "Advice"), h("dd", {}, text)));
    if (job.message) this.facts.appendChild(h("div.message", {}, h("dt", {}, "Message"), h("dd", {}, job.message)));
    this.why.hidden = !WAITS.has(job.state);
    if (!this.output) this.below(mine);
    this.output?.follow(!OVER.has(job.state));
  }

  /** @param {boolean} mine */
  below(mine) {
    const { job, context } = this;
    this.output = new JobOutput(this.id, context.fail);
    const log = mine ? this.output.node : h("section.card", {}, h("h2", {}, "Output"), h("p.empty", {}, "What a job writes is private to its owner and operators."));
    this.node.append(this.plots, log, card("History", this.story), this.submitted);
    if (mine) this.output.start();
    if (job.file) {
      this.submitted.hidden = false;
      fill(this.submitted, h("h2", {}, "As submitted"), h("pre", {}, JSON.stringify(job.file, null, 2)),
        h("p.quiet", {}, "The same as a command:"), h("pre.command", {}, asCommand(job.file)));
    }
  }

  /** @param {boolean} may */
  drawActions(may) {
    const { job, context } = this;
    const over = OVER.has(job.state);
    const key = `${may} ${job.state}`;
    if (this.actions.dataset.key === key) return;
    this.actions.dataset.key = key;
    const act = (/** @type {string} */ verb, /** @type {string} */ told) => async () => {
      this.job = await post(`/jobs/${this.id}/${verb}`);
      context.done(told);
      await this.look();
    };
    fill(this.actions,
      may && !over && job.state !== "HELD" && button("Hold", act("hold", `Job ${job.id} is held.`), context.fail),
      may && job.state === "HELD" && button("Release", act("release", `Job ${job.id} may start.`), context.fail),
      may && job.file && over && button("Submit again", () => this.again(), context.fail),
      may && job.file && h("a.button", { href: `#/submit?like=${job.id}` }, "Clone"),
      may && !over && button("Cancel", async () => {
        if (await confirmed(`End job ${job.id} for good? What it has not saved is lost.`, "End it")) await act("cancel", `Job ${job.id} is cancelled.`)();
      }, context.fail, "danger"));
  }

  async again() {
    const [made] = await post("/jobs", this.job.file, {}, { "Idempotency-Key": crypto.randomUUID() });
    this.context.done(`Submitted again as job ${made.id}.`);
    this.context.go(`#/jobs/${made.id}`);
  }

  /** New rows of the log: its story, and what it has measured. */
  async follow() {
    for (;;) {
      const page = await get("/events", { job: this.id, after: this.row, limit: 5000 });
      this.row = page.next;
      for (const row of page.events) this.take(row);
      if (page.end || !page.events.length) break;
    }
    this.drawPlots();
  }

  /** What was measured of it, now and then. */
  async measure() {
    if (!this.job.used?.samples || this.job.used.samples === this.sampled) return;
    this.sampled = this.job.used.samples;
    const { series = [] } = await get(`/jobs/${this.id}/usage`);
    const kinds = /** @type {[string, number][]} */ ([["GPUs busy (share)", 3], ["CPUs in use", 1], ["Memory in GiB", 2]]);
    for (const [name, place] of kinds) {
      const points = series.filter((/** @type {any[]} */ row) => typeof row[place] === "number").map((/** @type {any[]} */ row) => [row[0], row[place]]);
      if (points.length) this.plot(name).points = points;
    }
    this.drawPlots();
  }

  /** @param {string} name */
  plot(name) {
    let known = this.measures.get(name);
    if (!known) {
      this.plots.hidden = false;
      const canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
      this.charts.appendChild(h("figure", {}, h("figcaption", {}, name), h("div.figure", {}, canvas)));
      known = { points: [], chart: new TimeChart(canvas, { height: 130, about: name, format: (value) => Number(value.toPrecision(4)).toString() }) };
      this.measures.set(name, known);
    }
    return known;
  }

  drawPlots() {
    for (const [name, { points, chart }] of this.measures) {
      const last = points[points.length - 1][0];
      const first = points[0][0];
      chart.set([{ name, points, colour: this.palette.colour(name) }], first, Math.max(last, first + 10));
    }
  }

  /** @param {any} row */
  take(row) {
    if (row.event === "report") {
      const known = this.plot(row.text);
      known.points.push([row.at, row.value]);
      if (known.points.length > 20000) known.points = known.points.filter((_, i) => i % 2 === 0);
    }
    const told = STORY[row.event];
    if (told) this.story.appendChild(h("li", {}, h("time", { title: moment(row.at) }, this.context.now() - row.at < 43200 ? secondOf(row.at) : moment(row.at)), h("span", {}, told(row))));
  }

  /** Why and when, while it waits. */
  async ask() {
    if (!WAITS.has(this.job.state)) return;
    const found = await get(`/jobs/${this.id}/explain`);
    const total = found.parts.reduce((/** @type {number} */ sum, /** @type {any} */ part) => sum + part.seconds, 0) || 1;
    fill(this.reason, h("p.lead", {}, `${this.job.state === "HELD" ? "It is held" : "It waits"}: ${this.job.message || REASONS[found.reason] || found.text}.`),
      found.parts.length > 1 && h("ul.parts", {}, found.parts.map((/** @type {any} */ part) => h("li", {}, h("b", {}, `${percent(part.seconds / total)} `), `${duration(part.seconds)}: ${part.text || REASONS[part.reason] || part.reason}`))),
      found.ahead.length > 0 && h("p", {}, "Served first: ", ...commas(found.ahead.map((/** @type {string} */ id) => jobLink(id)))),
      found.waits_for.length > 0 && h("p", {}, "Waits for the end of ", ...commas(found.waits_for.map((/** @type {string} */ id) => jobLink(id)))),
      found.preempted_by.length > 0 && h("p", {}, "Made room for ", ...commas(found.preempted_by.map((/** @type {string} */ id) => jobLink(id)))));
    if (this.job.state !== "PENDING" || Date.now() - this.foreseen < 15000) return;
    this.foreseen = Date.now();
    if (!this.when.childNodes.length) fill(this.when, h("p.quiet", {}, "Simulating when it starts …"));
    const guess = await get(`/jobs/${this.id}/when`);
    fill(this.when, forecast(guess, this.context.now()));
    fill(this.when, forecast(guess, this.context.now()), verdict(await get(`/jobs/${this.id}/why`)));
  }
}

/**
 * What shows why a job waits, and what would start it.
 * @param {any} found
 */
export function verdict(found) {
  const helps = [found.remedy, ...(found.others || [])].filter((each) => each && !["wait", "none"].includes(each.kind));
  if (!found.text) return null;
  return h("div.verdict", {}, h("p", {}, `${found.text[0].toUpperCase()}${found.text.slice(1)}${found.text.endsWith(".") ? "" : "."}`),
    found.evidence?.length > 1 && h("ul.parts", {}, found.evidence.map((/** @type {string} */ each) => h("li", {}, each))),
    helps.length > 1 && h("p", {}, h("b", {}, "What would start it now: "), helps.map((each) => each.text).join("; "), "."));
}

/** @param {Node[]} nodes */
function commas(nodes) {
  return nodes.flatMap((node, i) => (i ? [", ", node] : [node]));
}

/**
 * When it starts: a sentence, and the interval as a picture.
 * @param {any} guess
 * @param {number} now
 */
export function forecast(guess, now) {
  if (guess.starts_at === null) return h("p.lead", {}, `The job ${guess.text}.`);
  const last = Math.max(guess.latest_at || guess.starts_at, guess.starts_at, now + 1);
  const place = (/** @type {number} */ at) => `${Math.min(100, (100 * Math.max(0, at - now)) / ((last - now) * 1.08))}%`;
  const span = h("div.span");
  span.style.left = place(guess.earliest_at);
  span.style.right = guess.latest_at === null ? "0" : `calc(100% - ${place(guess.latest_at)})`;
  const dot = h("div.dot");
  dot.style.left = place(guess.starts_at);
  const latest = guess.latest_at === null ? "perhaps never" : `${clock(guess.latest_at, now)} (in ${duration(guess.latest_at - now)})`;
  const trust = guess.backtest?.share_inside;
  return h("div", {},
    h("p.lead", {}, "Expected to start ", h("b", {}, guess.starts_at - now < 1 ? "now" : `in ${duration(guess.starts_at - now)}`), ` (${clock(guess.starts_at, now)}).`),
    h("div.interval", { role: "img", "aria-label": `between ${clock(guess.earliest_at, now)} and ${latest}` }, span, dot),
    h("p.quiet", {}, `With ${percent(guess.share)} probability between ${clock(guess.earliest_at, now)} and ${latest}; ${plural(guess.runs, "simulation")} of the present queue.`,
      typeof trust === "number" ? ` Of the last ${number(guess.backtest.jobs)} jobs, ${percent(trust)} were inside such an interval.` : ""));
}

