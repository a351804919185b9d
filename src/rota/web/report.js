// @ts-check
/** The report of a comparison, or of one run: its pictures, and what became of each job. */

import { TimeChart } from "./chart.js";
import { hueOf, isDark, Palette, ramp } from "./colours.js";
import { unpack } from "./columns.js";
import { copyText } from "./copy.js";
import { fill, h } from "./dom.js";
import { lasting, number, plural, round, sinceStart } from "./format.js";
import { HeatChart } from "./heat.js";
import { LANE_LEFT, LaneChart, timeStep } from "./lanes.js";
import { Span } from "./span.js";
import "./sheet.js";
import { lifeStrip, sentence, waits } from "./story.js";

const AT_ONCE = 6; // curves that can be told apart
const SHOWN_JOBS = 20;
const LOG_TIMES = [0.1, 1, 10, 60, 600, 3600, 36000, 345600, 3456000, 31536000];
const FINE_TIMES = [0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];
const WAYS = [["tenant", "Tenant"], ["size", "Size"], ["slowdown", "Slowdown"], ["job", "Job"]];

/**
 * Marks of a logarithmic axis of time.
 * @type {import("./chart.js").Ticks}
 */
export function logTicks(from, to) {
  const inside = (/** @type {number[]} */ times) => times.filter((at) => Math.log10(at) >= from && Math.log10(at) <= to);
  const wide = inside(LOG_TIMES);
  return (wide.length < 4 ? inside(FINE_TIMES) : wide).map((at) => [Math.log10(at), round(at)]);
}

/** @type {import("./chart.js").Ticks} */
export function spanTicks(from, to, most) {
  const step = timeStep(to - from, most);
  const made = /** @type {[number, string][]} */ ([]);
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) made.push([at, step >= 86400 ? round(at) : sinceStart(at, step)]);
  return made;
}

class Report {
  /** @param {any} data */
  constructor(data) {
    this.data = data;
    this.colours = new Palette();
    for (const policy of data.policies) this.colours.place(policy);
    this.tenantColours = new Palette();
    for (const name of data.kept) this.tenantColours.place(name);
    this.hidden = new Set();
    this.time = new Span(0, Math.max(1, ...data.looks.map((/** @type {any} */ look) => look.until_s)));
    this.shown = 0;
    /** @type {any} what is drawn of the policy that was chosen */
    this.now = null;
    this.way = data.kept.length > 1 ? "tenant" : "size";
    /** @type {Record<string, any>} */
    this.charts = {};
    /** @type {Map<any, Promise<any>>} */
    this.opened = new Map();
    /** @type {(() => void)[]} */
    this.painters = [];
  }

  /** Numbers of a packed table; each is unpacked once. @param {any} packed */
  open(packed) {
    let found = this.opened.get(packed);
    if (!found) this.opened.set(packed, (found = unpack(packed)));
    return found;
  }

  /** @param {string} name @returns {HTMLCanvasElement} */
  canvas(name) {
    const host = /** @type {HTMLElement} */ (document.querySelector(`[data-chart="${name}"]`));
    const made = /** @type {HTMLCanvasElement} */ (h("canvas"));
    host.append(made);
    return made;
  }

  /** @param {string} name @param {[string, string][]} entries names and colours */
  keys(name, entries) {
    const host = document.querySelector(`[data-keys="${name}"]`);
    if (host) fill(host, entries.map(([label, colour]) => h("span", {}, this.swatch(colour), label)));
  }

  /** @param {string} colour */
  swatch(colour) {
    const made = h("i.swatch");
    made.style.background = colour;
    return made;
  }

  async start() {
    this.markPolicies();
    if (!this.data.looks.length) return;
    await Promise.all([this.distributions(), this.multiples()]);
    this.tools();
    await this.closely();
    this.jobs();
    const repaint = () => {
      this.markPolicies();
      for (const paint of this.painters) paint();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    addEventListener("beforeprint", repaint);
    addEventListener("afterprint", repaint);
    document.documentElement.dataset.ready = "yes";
    const wanted = decodeURIComponent(location.hash).match(/^#job=(.*)$/);
    if (wanted) this.explain(wanted[1]);
  }

  /** Policies have their colours in tables, too. */
  markPolicies() {
    for (const head of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("th[data-policy]"))) {
      head.querySelector(".swatch")?.remove();
      head.prepend(this.swatch(this.colours.colour(head.dataset.policy || "")));
    }
  }

  // --- distributions -------------------------------------------------------------------------

  async distributions() {
    const { looks, policies, means } = this.data;
    if (looks.length > AT_ONCE) {
      const order = policies.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name, mean: means[i] ?? Infinity })).sort((/** @type {any} */ a, /** @type {any} */ b) => a.mean - b.mean);
      const kept = new Set([this.data.baseline, ...order.map((/** @type {any} */ one) => one.name)].slice(0, AT_ONCE));
      for (const name of policies) if (!kept.has(name)) this.hidden.add(name);
    }
    for (const column of ["jct_s", "wait_s"]) {
      const curves = await Promise.all(looks.map((/** @type {any} */ look) => this.open(look.cdf[column])));
      const longest = Math.max(10, ...curves.map((curve) => curve.time[curve.time.length - 1] || 0));
      const span = new Span(0, Math.log10(longest) + 0.05);
      const nobody = column === "wait_s" && !curves.some((curve) => curve.time[curve.time.length - 1] > 0);
      const chart = new TimeChart(this.canvas(`cdf-${column}`), {
        height: 280, step: true, least: 0, span, ticks: logTicks, format: (value) => `${Math.round(value * 1000) / 10} %`,
        label: (at) => `within ${lasting(10 ** at)}`, about: column === "jct_s" ? "Distribution of completion times" : nobody ? "Nobody waited" : "Distribution of waiting times",
      });
      const draw = () => {
        const series = looks.map((/** @type {any} */ look, /** @type {number} */ i) => ({ look, curve: curves[i] })).filter((/** @type {any} */ one) => !this.hidden.has(one.look.policy))
          .map((/** @type {any} */ { look, curve }) => {
            /** @type {[number, number][]} */
            const points = [[0, 0]];
            for (let i = 0; i < curve.time.length; i += 1) points.push([Math.max(0, Math.log10(curve.time[i])), curve.share[i]]);
            return { name: look.policy, points, ...this.line(look.policy) };
          });
        chart.set(series, 0, 1, 1);
      };
      this.charts[`cdf-${column}`] = chart;
      this.painters.push(draw);
      draw();
    }
    this.painters.push(() => this.legends());
    this.legends();
  }

  /** @param {string} policy */
  line(policy) {
    const at = this.data.policies.indexOf(policy);
    return { colour: this.colours.colour(policy), dash: this.data.dashes[at].map((/** @type {number} */ each) => each * 2) };
  }

  legends() {
    const host = /** @type {HTMLElement} */ (document.querySelector("[data-legend]"));
    const focused = /** @type {HTMLElement | null} */ (host.contains(document.activeElement) ? document.activeElement : null)?.title;
    fill(host, this.data.looks.map((/** @type {any} */ { policy }) => {
      const mark = /** @type {HTMLCanvasElement} */ (h("canvas.dash", { width: 56, height: 16, "aria-hidden": "true" }));
      const context = /** @type {CanvasRenderingContext2D} */ (mark.getContext("2d"));
      const { colour, dash } = this.line(policy);
      context.scale(2, 2);
      context.strokeStyle = colour;
      context.lineWidth = 2.5;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(1, 4);
      context.lineTo(27, 4);
      context.stroke();
      return h("button", { type: "button", title: policy, "aria-pressed": String(!this.hidden.has(policy)), onclick: () => {
        if (!this.hidden.delete(policy)) this.hidden.add(policy);
        for (const paint of this.painters) paint();
      } }, mark, this.data.short[policy]);
    }));
    if (focused) /** @type {HTMLElement | undefined} */ ([...host.querySelectorAll("button")].find((each) => each.title === focused))?.focus();
  }

  // --- over time -----------------------------------------------------------------------------

  /** A row for each policy, all on the same axes. */
  async multiples() {
    const { looks } = this.data;
    const host = /** @type {HTMLElement} */ (document.getElementById("multiples"));
    const tables = await Promise.all(looks.map((/** @type {any} */ look) => Promise.all([this.open(look.queue), this.open(look.use)])));
    const most = (/** @type {ArrayLike<number>} */ values) => Array.prototype.reduce.call(values, (a, b) => Math.max(Number(a), Number(b)), 0);
    const longest = Math.max(1, ...tables.map(([queue]) => Number(most(queue.waiting))));
    const capacity = Math.max(1, ...tables.map(([, use]) => Number(most(use.capacity))));
    const height = looks.length > AT_ONCE ? 86 : 118;
    fill(host, h("p.head", {}, "Jobs that wait"), h("p.head", {}, "GPUs in use, and in overhead"));
    const panels = looks.map((/** @type {any} */ look, /** @type {number} */ i) => {
      const [queue, use] = tables[i];
      const points = (/** @type {any} */ table, /** @type {(i: number) => number} */ value) => {
        const made = /** @type {[number, number][]} */ ([]);
        for (let at = 0; at < table.time.length; at += 1) made.push([table.time[at], value(at)]);
        return made;
      };
      const waiting = points(queue, (at) => queue.waiting[at]);
      const useful = points(use, (at) => use.useful[at]);
      const overhead = points(use, (at) => Math.max(0, use.allocated[at] - use.useful[at]));
      const make = (/** @type {string} */ what, /** @type {any} */ options) => {
        const canvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
        const name = h("figcaption", {}, h("span", { "data-mark": look.policy }), look.policy);
        host.append(h("figure.multiple", {}, name, h("div.figure", { "data-chart": `${what}-${i}` }, canvas)));
        const chart = new TimeChart(canvas, { height, left: 52, span: this.time, ticks: spanTicks, label: (/** @type {number} */ at) => sinceStart(at), ...options });
        this.charts[`${what}-${i}`] = chart;
        return chart;
      };
      const left = make("queue", { step: true, stacked: true, about: `Jobs that wait under ${look.policy}` });
      const right = make("use", { stacked: true, about: `GPUs in use under ${look.policy}` });
      return () => {
        left.set([{ name: "waiting", points: waiting, colour: this.colours.colour(look.policy) }], 0, 1, longest);
        right.set([{ name: "useful", points: useful, colour: this.colours.colour(look.policy) }, { name: "overhead", points: overhead, colour: isDark() ? "#8f959c" : "#8a8f98" }], 0, 1, capacity);
      };
    });
    const draw = () => {
      for (const mark of /** @type {NodeListOf<HTMLElement>} */ (host.querySelectorAll("[data-mark]"))) fill(mark, this.swatch(this.colours.colour(mark.dataset.mark || "")));
      for (const panel of panels) panel();
    };
    this.painters.push(draw);
    draw();
  }

  tools() {
    /** @type {Record<string, () => void>} */
    const acts = { in: () => this.time.zoom(0.5), out: () => this.time.zoom(2), left: () => this.time.move(-0.3), right: () => this.time.move(0.3), reset: () => this.time.reset() };
    for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-zoom]"))) button.addEventListener("click", acts[button.dataset.zoom || "reset"]);
    const said = /** @type {HTMLElement} */ (document.getElementById("range"));
    this.time.users.add(() => {
      const exact = (this.time.to - this.time.from) / 800;
      said.textContent = this.time.whole ? "" : `${sinceStart(this.time.from, exact)} to ${sinceStart(this.time.to, exact)}`;
    });
  }

  // --- jobs on GPUs --------------------------------------------------------------------------

  async closely() {
    const select = /** @type {HTMLSelectElement} */ (document.getElementById("policy"));
    this.data.looks.forEach((/** @type {any} */ look, /** @type {number} */ i) => select.append(new Option(look.policy, String(i))));
    select.addEventListener("change", () => this.choose(Number(select.value)));
    const canvas = this.canvas("lanes");
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Jobs on GPUs over time: plus and minus zoom, arrow keys move, 0 shows everything.");
    const lanes = new LaneChart(canvas, {
      height: 520, label: (at) => (this.time.to - this.time.from > 5 * 86400 ? round(at) : sinceStart(at, (this.time.to - this.time.from) / 10)),
      describe: (bar) => this.describe(Number(bar.key)), pick: (bar) => this.pickBar(Number(bar.key)),
      moved: (from, to) => this.time.set(from, to),
    });
    canvas.addEventListener("dblclick", () => this.time.reset());
    this.time.users.add(() => {
      if (lanes.from !== this.time.from || lanes.to !== this.time.to) lanes.show(this.time.from, this.time.to);
    });
    this.charts.lanes = lanes;
    this.charts.tenants = new TimeChart(this.canvas("tenants"), { height: 200, left: LANE_LEFT, stacked: true, span: this.time, ticks: spanTicks, label: (at) => sinceStart(at), format: (value) => `${Math.round(value * 1000) / 10} %`, about: "Share of the GPUs by tenant" });
    this.charts.heat = new HeatChart(this.canvas("heat"), { span: this.time, left: LANE_LEFT, what: "in use", about: "Share of the GPUs of each node in use, over time" });
    const fragments = this.data.looks.some((/** @type {any} */ look) => look.fragments);
    /** @type {HTMLElement} */ (document.getElementById("f-fragments")).hidden = !fragments;
    if (fragments) this.charts.fragments = new HeatChart(this.canvas("fragments"), { span: this.time, left: LANE_LEFT, what: "fragments", about: "Share of the GPUs of each node that are fragments, over time" });
    const tabs = /** @type {HTMLElement} */ (document.getElementById("ways"));
    const drawTabs = () => fill(tabs, WAYS.map(([key, title]) => h("button", { type: "button", "aria-pressed": String(key === this.way), onclick: () => {
      this.way = key;
      drawTabs();
      this.drawLanes();
    } }, title)));
    drawTabs();
    this.painters.push(() => {
      this.drawLanes();
      this.drawMore();
    });
    await this.choose(0);
  }

  /** @param {number} at */
  async choose(at) {
    this.shown = at;
    const look = this.data.looks[at];
    const [bars, fates, jobs] = await Promise.all([this.open(look.lanes.bars), this.open(look.fates), this.open(this.data.jobs[look.jobs].columns)]);
    this.now = { look, bars, fates, jobs, table: this.data.jobs[look.jobs] };
    const all = look.lanes.all > look.lanes.count ? `, the largest of ${number(look.lanes.all)}` : "";
    /** @type {HTMLElement} */ (document.getElementById("bars")).textContent = `${number(look.lanes.count)} bars${all}`;
    this.drawLanes();
    await this.drawMore();
  }

  /** @param {number} job */
  slowdown(job) {
    const { fates } = this.now;
    return fates.jct[job] / Math.max(10, fates.jct[job] - fates.wait[job]);
  }

  /** @param {number} job */
  colourOf(job) {
    const { jobs, table } = this.now;
    const grey = isDark() ? "#5b6472" : "#aab3c0";
    if (this.way === "job") return hueOf(job);
    if (this.way === "size") return ramp(Math.log2(Math.max(1, jobs.gpus[job])) / 6);
    if (this.way === "slowdown") return Number.isFinite(this.slowdown(job)) ? ramp(Math.log10(Math.max(1, this.slowdown(job))) / 2) : grey;
    const name = table.tenants[jobs.tenant[job]];
    return this.data.kept.includes(name) ? this.tenantColours.colour(name) : grey;
  }

  drawLanes() {
    const { look, bars, table } = this.now;
    const chart = this.charts.lanes;
    const overhead = isDark() ? "#e4e6e9" : "#333a46";
    const known = new Map();
    const made = [];
    for (let i = 0; i < look.lanes.count; i += 1) {
      const job = bars.job[i];
      if (!known.has(job)) known.set(job, this.colourOf(job));
      made.push({ lane: bars.node[i], rows: bars.lanes[i], row: bars.lane[i], from: bars.start[i], to: bars.start[i] + bars.length[i], key: String(i), fill: bars.overhead[i] ? overhead : known.get(job), thin: Boolean(bars.overhead[i]) });
    }
    chart.set(look.lanes.nodes.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name, rows: look.lanes.rows[i] })), made, look.until_s, look.lanes.down.map((/** @type {number[]} */ [lane, from, to]) => ({ lane, from, to })));
    chart.show(this.time.from, this.time.to);
    const grey = isDark() ? "#5b6472" : "#aab3c0";
    /** @type {[string, string][]} */
    const entries = this.way === "tenant" ? [...this.data.kept.map((/** @type {string} */ name) => [name, this.tenantColours.colour(name)]), ...(table.tenants.length > this.data.kept.length ? [["others", grey]] : [])]
      : this.way === "size" ? [1, 2, 4, 8, 16, 64].map((gpus) => [plural(gpus, "GPU"), ramp(Math.log2(gpus) / 6)])
        : this.way === "slowdown" ? [[1, "no wait"], [3, "3 × its run time"], [10, "10 ×"], [100, "100 × or more"]].map(([value, text]) => [String(text), ramp(Math.log10(Number(value)) / 2)])
          : [["every job has a colour of its own", hueOf(1)]];
    this.keys("lanes", [...entries, ["being started, stopped or moved", overhead], ...(look.lanes.down.length ? /** @type {[string, string][]} */ ([["hatched: the node is down", "repeating-linear-gradient(135deg, var(--quiet) 0 1.5px, transparent 1.5px 4px)"]]) : [])]);
  }

  async drawMore() {
    const { look } = this.now;
    const shares = await this.open(look.tenants.shares);
    const bins = look.tenants.shares.n;
    const series = look.tenants.names.map((/** @type {string} */ name, /** @type {number} */ k) => ({
      name, colour: this.data.kept.includes(name) ? this.tenantColours.colour(name) : isDark() ? "#5b6472" : "#aab3c0",
      points: Array.from({ length: bins }, (_, i) => /** @type {[number, number]} */ ([(i / bins) * look.until_s, shares[k][i]])),
    }));
    this.charts.tenants.set(series, 0, 1, 1);
    this.keys("tenants", series.map((/** @type {any} */ one) => [one.name, one.colour]));
    for (const name of ["heat", "fragments"]) {
      const chart = this.charts[name];
      if (!chart) continue;
      const strongest = Math.max(0.1, ...this.data.looks.map((/** @type {any} */ each) => each[name]?.top || 0));
      const heat = look[name];
      if (heat) chart.set(heat.nodes, heat.bins, (await this.open(heat.cells)).cell, heat.top, strongest, look.until_s);
      else chart.set([], 0, [], 1, 1, 1);
      this.keys(name, [...[0, 0.25, 0.5, 0.75, 1].map((share) => /** @type {[string, string]} */ ([`${Math.round(share * strongest * 1000) / 10} %`, ramp(share)])), ["down", "var(--bad)"]]);
    }
  }

  /** @param {number} i */
  describe(i) {
    const { bars, jobs, table, look } = this.now;
    const job = bars.job[i];
    const tenant = table.tenants[jobs.tenant[job]];
    return [`job ${table.ids[job]} (${plural(jobs.gpus[job], "GPU")}${table.tenants.length > 1 ? `, ${tenant}` : ""})`, bars.overhead[i] ? "being started, stopped or moved" : "running",
      `${sinceStart(bars.start[i], 1)} to ${sinceStart(bars.start[i] + bars.length[i], 1)} (${lasting(bars.length[i])})`, `${look.lanes.nodes[bars.node[i]]}: ${number(Number(bars.gpus[i].toPrecision(4)))} of its GPUs`, "click for why it waited"].join("\n");
  }

  /** @param {number} i */
  pickBar(i) {
    this.explain(this.now.table.ids[this.now.bars.job[i]]);
  }

  // --- job by job ----------------------------------------------------------------------------

  jobs() {
    const { looks, baseline, policies, means } = this.data;
    const others = looks.filter((/** @type {any} */ look) => look.policy !== baseline);
    const several = others.length > 0 && looks.length > others.length;
    let order = several ? "gained" : "waited";
    const best = others.map((/** @type {any} */ look) => look.policy).sort((/** @type {string} */ a, /** @type {string} */ b) => (means[policies.indexOf(a)] ?? Infinity) - (means[policies.indexOf(b)] ?? Infinity));
    let policy = several ? best[0] : looks[0].policy;
    const tabs = /** @type {HTMLElement} */ (document.getElementById("job-order"));
    const host = /** @type {HTMLElement} */ (document.getElementById("job-list"));
    const label = /** @type {HTMLElement} */ (document.getElementById("job-policy"));
    const select = /** @type {HTMLSelectElement} */ (label.querySelector("select"));
    label.hidden = looks.length < 2;
    for (const look of looks) select.append(new Option(look.policy, look.policy, false, look.policy === policy));
    const draw = async () => {
      fill(tabs, [...(several ? [["gained", "Gained most"], ["lost", "Lost most"]] : []), ["waited", "Waited longest"]].map(([key, title]) => h("button", { type: "button", "aria-pressed": String(key === order), onclick: () => {
        order = key;
        draw();
      } }, title)));
      const look = looks.find((/** @type {any} */ each) => each.policy === policy);
      const base = looks.find((/** @type {any} */ each) => each.policy === baseline);
      const table = this.data.jobs[look.jobs];
      const [fates, columns, before] = await Promise.all([this.open(look.fates), this.open(table.columns), base && base.jobs === look.jobs ? this.open(base.fates) : null]);
      const change = (/** @type {number} */ job) => (before ? fates.jct[job] - before.jct[job] : NaN);
      const value = order === "waited" ? (/** @type {number} */ job) => fates.wait[job] : order === "lost" ? change : (/** @type {number} */ job) => -change(job);
      const found = table.ids.map((/** @type {string} */ _, /** @type {number} */ job) => job).filter((/** @type {number} */ job) => value(job) > 0)
        .sort((/** @type {number} */ a, /** @type {number} */ b) => value(b) - value(a)).slice(0, SHOWN_JOBS);
      const heads = ["Job", "GPUs", ...(table.tenants.length > 1 ? ["Tenant"] : []), "Ran", "Waited", ...(before && policy !== baseline ? [`Done, against ${baseline}`] : []), "Why"];
      const rows = found.map((/** @type {number} */ job) => h("tr", {}, h("th", { scope: "row" }, h("button.plain.link", { type: "button", onclick: () => this.explain(table.ids[job]) }, table.ids[job])),
        h("td.number", {}, number(columns.gpus[job])), table.tenants.length > 1 && h("td", {}, table.tenants[columns.tenant[job]]),
        h("td.number", {}, lasting(fates.jct[job] - fates.wait[job])), h("td.number", {}, lasting(fates.wait[job])),
        before && policy !== baseline && h("td.number", {}, change(job) < 0 ? `${lasting(-change(job))} sooner` : `${lasting(change(job))} later`),
        h("td", {}, waits(fates, job).slice(0, 2).map(([reason, seconds]) => `${reason} ${lasting(seconds)}`).join(", ") || "–")));
      const numbers = new Set(["GPUs", "Ran", "Waited", `Done, against ${baseline}`]);
      fill(host, found.length ? h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Jobs" }, h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h(numbers.has(head) ? "th.number" : "th", { scope: "col" }, head)))), h("tbody", {}, rows)))
        : h("p.quiet", {}, order === "waited" ? "Nobody waited." : order === "gained" ? "No job is done sooner." : "No job is done later."));
    };
    select.addEventListener("change", () => {
      policy = select.value;
      draw();
    });
    const form = /** @type {HTMLFormElement} */ (document.getElementById("find-job"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.explain(/** @type {any} */ (form.elements).namedItem("id").value.trim());
    });
    draw();
  }

  /** What became of a job under every policy. @param {string} id */
  async explain(id) {
    const said = /** @type {HTMLElement} */ (document.getElementById("job-said"));
    const rows = [];
    for (const look of this.data.looks) {
      const table = this.data.jobs[look.jobs];
      const job = table.ids.indexOf(id);
      if (job < 0) continue;
      const [fates, columns, bars] = await Promise.all([this.open(look.fates), this.open(table.columns), this.open(look.lanes.bars)]);
      rows.push({ look, table, job, fates, columns, bars });
    }
    if (!rows.length) {
      said.textContent = `There is no job ${id} here.`;
      return;
    }
    said.textContent = "";
    const { job, table, columns } = rows[0];
    const submit = columns.submit[job];
    const ends = rows.map(({ look, fates, job: at }) => (fates.jct[at] >= 0 ? submit + fates.jct[at] : look.until_s));
    const until = Math.max(...ends, submit + 1);
    const parts = rows.map(({ look, fates, bars, job: at }, i) => {
      const runs = /** @type {[number, number, boolean][]} */ ([]);
      const seen = new Set(); // a gang on several nodes runs once
      for (let k = 0; k < bars.job.length; k += 1) {
        if (bars.job[k] !== at || seen.has(bars.start[k])) continue;
        seen.add(bars.start[k]);
        runs.push([bars.start[k], bars.start[k] + bars.length[k], Boolean(bars.overhead[k])]);
      }
      const ended = fates.jct[at] >= 0;
      return h("div.fate", {}, h("div.who", {}, this.swatch(this.colours.colour(look.policy)), look.policy), lifeStrip(runs, submit, ended ? ends[i] : null, until, this.colours.colour(look.policy)),
        h("div.how", {}, h("b", {}, ended ? `${fates.done[at] ? "done" : "ended"} after ${lasting(fates.jct[at])}` : "not done when the run ended"), ` · ${sentence(waits(fates, at), fates.stops[at])}`));
    });
    const first = rows[0].look;
    const place = [this.data.folder, first.folder].filter((each) => each && each !== ".").join("/") || ".";
    const command = `rota explain ${place} ${id}`;
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog.job", { "aria-labelledby": "job-title" }));
    const copy = h("button", { type: "button", onclick: async () => {
      await copyText(command);
      copy.textContent = "Copied";
    } }, "Copy");
    const close = () => {
      dialog.close();
      dialog.remove();
      history.replaceState(null, "", location.pathname + location.search);
    };
    fill(dialog, h("div.dialog-head", {}, h("h2", { id: "job-title" }, `Job ${id}`), h("button", { type: "button", onclick: close, autofocus: true }, "Close")),
      h("p.quiet", {}, [plural(columns.gpus[job], "GPU"), table.tenants.length > 1 && `tenant ${table.tenants[columns.tenant[job]]}`, `submitted at ${sinceStart(submit, 1)}`, columns.work[job] > 0 && `needs ${lasting(columns.work[job])} alone`].filter(Boolean).join(" · ")),
      h("div.fates", {}, parts), h("p.quiet", {}, "Pale: it waited. Colour: it ran. Every step, and who was served first:"),
      h("div.command-box", {}, h("pre.command", { tabindex: "0" }, command), copy));
    dialog.addEventListener("cancel", close);
    document.body.append(dialog);
    dialog.showModal();
    history.replaceState(null, "", `#job=${encodeURIComponent(id)}`);
  }
}

const reportData = typeof document === "undefined" ? null : document.getElementById("data");
if (reportData && document.getElementById("policies")) {
  const report = new Report(JSON.parse(reportData.textContent || "null"));
  Object.assign(window, { rotaReport: report }); // for measurements
  report.start();
}
