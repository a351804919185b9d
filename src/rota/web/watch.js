// @ts-check
/** A run as an animation: the cluster, the queue, and what was decided; two runs side by side on one clock. */

import { TimeChart } from "./chart.js";
import { hueOf, isDark, Palette, ramp } from "./colours.js";
import { unpack } from "./columns.js";
import { fill, h, say } from "./dom.js";
import { REASONS, heldOf, lasting, number, percent, plural, round, sinceStart } from "./format.js";
import { timeStep } from "./lanes.js";
import { ClusterMap } from "./map.js";
import { Playback, WHAT } from "./play.js";
import { QueueLine } from "./queue-line.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8];
const WHOLE_S = 60; // how long a run takes at speed 1
const TEXT_MS = 160; // words change at most so often: nobody reads faster
const DECISIONS = 7;
const NEWS_MS = 1000; // between questions for more of a run that goes on

/** @param {any} table of jobs @param {any} run @param {any} tables */
function playbackOf(table, run, tables) {
  const ends = Float64Array.from(tables.jobs.submit, (at, job) => at + tables.fates.jct[job]);
  return new Playback(run, tables.bars, tables.waits, tables.events, table.ids.length, tables.jobs.submit, ends);
}

/** @param {import("./play.js").Columns} waits @returns {Map<number, number[]>} */
function waitsByJob(waits) {
  const found = new Map();
  for (let i = 0; i < waits.job.length; i += 1) {
    const list = found.get(waits.job[i]);
    if (list) list.push(i);
    else found.set(waits.job[i], [i]);
  }
  return found;
}

/** One run: its part of the page. */
class Stage {
  /** @param {any} data @param {any} run @param {any} tables @param {Palette} tenants */
  constructor(data, run, tables, tenants) {
    this.tenants = tenants;
    this.way = data.kept.length > 1 ? "tenant" : "size";
    /** @type {Map<number, {fill: string, label?: string}>} */
    this.painted = new Map();
    this.data = data;
    this.run = run;
    this.table = data.jobs[run.jobs];
    this.jobs = tables.jobs;
    this.fates = tables.fates;
    this.queue = tables.queue;
    this.play = playbackOf(this.table, run, tables);
    this.waitsOf = waitsByJob(tables.waits);
    this.mapCanvas = /** @type {HTMLCanvasElement} */ (h("canvas", { role: "application", "aria-label": `Map of the GPUs under ${run.policy}: arrow keys move` }));
    this.lineCanvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.chartCanvas = /** @type {HTMLCanvasElement} */ (h("canvas"));
    this.numbers = h("p.numbers");
    this.told = h("ol.decisions", { "aria-label": `What was decided under ${run.policy}` });
    this.cursor = h("div.cursor", { "aria-hidden": "true" });
    this.words = [""];
  }

  /** More than was known. @param {any} data @param {any} run @param {any} tables */
  take(data, run, tables) {
    this.data = data;
    this.run = run;
    this.table = data.jobs[run.jobs];
    this.jobs = tables.jobs;
    this.fates = tables.fates;
    this.queue = tables.queue;
    this.play = playbackOf(this.table, run, tables);
    this.waitsOf = waitsByJob(tables.waits);
    this.painted.clear();
    this.map?.set(run.nodes, this.play.owners);
  }

  /** @param {number} height */
  node(height) {
    const map = h("div.figure", {}, this.mapCanvas);
    const made = h("section.card.stage", { "aria-label": this.run.policy }, h("h2", {}, this.run.policy), this.numbers, map,
      h("h3", {}, "The queue, in the order of submission"), h("div.figure.line", {}, this.lineCanvas),
      h("h3", {}, "Jobs that wait, over time"), h("div.figure.past", {}, this.chartCanvas, this.cursor),
      h("h3", {}, "Decisions"), this.told);
    this.map = new ClusterMap(this.mapCanvas, { height, paint: (owner, place) => this.paint(owner, place), parts: (place) => this.parts(place), describe: (spot) => this.describe(spot) });
    this.line = new QueueLine(this.lineCanvas, () => {});
    this.chart = new TimeChart(this.chartCanvas, { height: 84, stacked: true, left: 44, about: `Jobs that wait under ${this.run.policy}`, label: (at) => sinceStart(at), ticks: (from, to, most) => {
      const step = timeStep(to - from, most);
      const ticks = /** @type {[number, string][]} */ ([]);
      for (let at = 0; at <= to; at += step) ticks.push([at, step >= 86400 ? round(at) : sinceStart(at, step)]);
      return ticks;
    } });
    this.play.changed = new Set();
    this.map.set(this.run.nodes, this.play.owners);
    return made;
  }

  /** @param {number} until @param {number} most */
  drawChart(until, most) {
    const points = /** @type {[number, number][]} */ ([]);
    for (let i = 0; i < this.queue.time.length; i += 1) points.push([this.queue.time[i], this.queue.waiting[i]]);
    this.chart?.set([{ name: "waiting", points, colour: isDark() ? "#8ea3ff" : "#3450d8" }], 0, until, most);
  }

  /** @param {number} job */
  colour(job) {
    const grey = isDark() ? "#5b6472" : "#aab3c0";
    if (this.way === "job") return hueOf(job);
    if (this.way === "size") return ramp(0.15 + (0.85 * Math.log2(Math.max(1, this.jobs.gpus[job]))) / 6);
    const name = this.table.tenants[this.jobs.tenant[job]];
    return this.data.kept.includes(name) ? this.tenants.colour(name) : grey;
  }

  /** @param {number} owner @param {number} place */
  paint(owner, place) {
    if (!owner) return null;
    const key = owner * 2 + this.play.taking[place];
    let known = this.painted.get(key);
    if (!known) this.painted.set(key, (known = { fill: this.colour(owner - 1), label: this.play.taking[place] ? "…" : undefined }));
    return known;
  }

  /** All that share a GPU; empty: it has one owner, or none. @param {number} place */
  parts(place) {
    return (this.play.shared.get(place) || []).map((i) => ({ fill: this.colour(this.play.bars.job[i]) }));
  }

  /** @param {string} way */
  recolour(way) {
    this.way = way;
    this.painted.clear();
    this.map?.redraw(null);
    this.frame(true);
  }

  /** @param {import("./map.js").Spot} spot */
  describe(spot) {
    const owner = this.play.owners[spot.place];
    const first = `${this.run.nodes[spot.node].name}, GPU ${spot.gpu}`;
    const parts = this.play.shared.get(spot.place) || [];
    if (parts.length) {
      const { bars } = this.play;
      return [`${first}, shared by ${plural(parts.length, "job")}`, ...parts.map((i) => `${this.name(bars.job[i])}${bars.overhead[i] ? ": being started, stopped or moved" : ""}`)].join("\n");
    }
    return owner ? `${first}\n${this.name(owner - 1, this.play.held(owner - 1))}${this.play.taking[spot.place] ? "\nbeing started, stopped or moved" : ""}` : `${first}\nfree`;
  }

  /** @param {number} job @param {number} [held] GPUs that it has now */
  name(job, held) {
    const tenant = this.table.tenants.length > 1 ? `, ${this.table.tenants[this.jobs.tenant[job]]}` : "";
    return `job ${this.table.ids[job]} (${heldOf(this.jobs.gpus[job], held)}${tenant})`;
  }

  /** The moment that is shown. @param {number} at */
  seek(at) {
    this.play.seek(at);
  }

  /** Draw what changed. @param {boolean} jumps */
  frame(jumps) {
    const changed = this.play.changes();
    if (changed === null || changed.size) this.map?.redraw(changed);
    const dark = isDark() ? 1 : 0;
    const { waits } = this.play;
    this.line?.set(this.play.line().slice(0, 400).map((i) => ({ key: waits.job[i], gpus: this.jobs.gpus[waits.job[i]], fill: this.colour(waits.job[i]), reason: this.data.reasons[waits.reason[i]][0], colour: this.data.reasons[waits.reason[i]][1 + dark] })), jumps);
    if (this.line) {
      this.line.more += Math.max(0, this.play.waiting.size - 400);
      this.line.draw();
    }
  }

  /** Words and numbers of this moment. @param {number} until */
  tell(until) {
    const { play } = this;
    const gpus = play.owners.length;
    const text = `${plural(play.active, "job")} on ${number(Math.round(play.busy * 100) / 100)} of ${number(gpus)} GPUs (${percent(play.busy / gpus)}) · ${number(play.line().length)} waiting · ${number(play.over())} over`;
    say(this.numbers, text);
    const lines = play.latest(DECISIONS).map((i) => this.decision(i));
    if (lines.join("\n") !== this.words.join("\n")) {
      this.words = lines;
      fill(this.told, lines.length ? lines.map((line, i) => h("li", {}, h("time", {}, sinceStart(play.events.time[play.latest(DECISIONS)[i]], 1)), h("span", {}, line))) : h("li.quiet", {}, "nothing was decided yet"));
    }
    const chart = this.chart;
    if (chart) this.cursor.style.transform = `translateX(${Math.round(chart.left + (Math.min(play.at, until) / until) * (chart.wide - chart.left))}px)`;
  }

  /** What kept a job, in words. @param {number} reason */
  why(reason) {
    const [name] = this.data.reasons[reason];
    return `${name}: ${REASONS[name] || "the log does not tell"}`;
  }

  /** A decision with its reason. @param {number} i */
  decision(i) {
    const { events, waits } = this.play;
    const what = events.what[i];
    if (what >= 6) return `node ${this.run.nodes[events.other[i]]?.name || "?"} ${what === 6 ? "fails" : "is back"}`;
    const job = events.job[i];
    const at = events.time[i];
    if (what === 3) return `${this.name(job)} is stopped${events.other[i] >= 0 ? ` for ${this.name(events.other[i])}` : ""}`;
    if (what >= 4) return `${this.name(job)} ${WHAT[what]}`;
    const names = this.play.nodesAt(job, at).map((node) => this.run.nodes[node].name);
    const where = names.length ? ` on ${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}` : "";
    const own = (this.waitsOf.get(job) || []).filter((each) => waits.from[each] < at);
    const before = own.filter((each) => Math.abs(waits.from[each] + waits.length[each] - at) < 0.01);
    const last = before[before.length - 1];
    const since = own.reduce((sum, each) => sum + Math.min(waits.length[each], at - waits.from[each]), 0);
    const why = last === undefined || since < 1 ? ", without waiting" : ` after ${lasting(since)} of waiting (${this.why(waits.reason[last])})`;
    return `${this.name(job)} ${WHAT[what]}${where}${why}`;
  }
}

class Watch {
  /** @param {any} data */
  constructor(data) {
    this.data = data;
    this.until = Math.max(1, ...data.runs.map((/** @type {any} */ run) => run.until_s));
    this.at = 0;
    this.speed = 1;
    this.plays = false;
    this.idle = false; // plays, and has shown all that is known
    this.last = 0;
    this.spoke = 0;
    this.frames = 0;
    this.cost = 0; // ms of scripting, all frames together
    /** @type {Stage[]} */
    this.stages = [];
    this.most = 1; // jobs that wait at once
  }

  /** The tables of all runs. */
  async tables() {
    const { data } = this;
    this.until = Math.max(1, ...data.runs.map((/** @type {any} */ run) => run.until_s));
    const tables = await Promise.all(data.runs.map(async (/** @type {any} */ run) => {
      const [bars, waits, events, fates, queue, jobs] = await Promise.all([run.bars, run.waits, run.events, run.fates, run.queue, data.jobs[run.jobs].columns].map(unpack));
      return { bars, waits, events, fates, queue, jobs };
    }));
    this.most = Math.max(1, ...tables.map(({ queue }) => Array.prototype.reduce.call(queue.waiting, (a, b) => Math.max(Number(a), Number(b)), 0)).map(Number));
    return tables;
  }

  async start() {
    const { data } = this;
    const tenants = new Palette();
    for (const name of data.kept) tenants.place(name);
    const tables = await this.tables();
    this.stages = data.runs.map((/** @type {any} */ run, /** @type {number} */ i) => new Stage(data, run, tables[i], tenants));
    const host = /** @type {HTMLElement} */ (document.getElementById("stages"));
    host.classList.toggle("two", data.runs.length > 1);
    fill(host, this.stages.map((stage) => stage.node(data.runs.length > 1 ? 300 : 380)));
    this.drawCharts();
    this.controls();
    const wanted = Number(new URLSearchParams(location.hash.slice(1)).get("t"));
    this.seek(wanted > 0 ? wanted : 0);
    document.documentElement.dataset.ready = "yes";
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches && !wanted) this.toggle();
    if (data.follow !== null) this.follow();
  }

  drawCharts() {
    for (const stage of this.stages) stage.drawChart(this.until, this.most);
  }

  /** Ask for what is new, as long as a run goes on. */
  async follow() {
    while (this.data.follow !== null) {
      await new Promise((done) => setTimeout(done, NEWS_MS));
      const answer = await fetch(`news?has=${encodeURIComponent(this.data.follow)}`, { cache: "no-store" }).catch(() => null);
      if (answer === null || !answer.ok) {
        this.tell(answer === null ? "Nobody serves this page any more: it shows what was known." : await answer.text());
        return;
      }
      if (answer.status === 200) await this.more(await answer.json());
    }
  }

  /** A run has gone on. @param {any} data */
  async more(data) {
    this.data = data;
    const tables = await this.tables();
    const tenants = this.stages[0].tenants;
    for (const name of data.kept) tenants.place(name);
    this.stages.forEach((stage, i) => stage.take(data, data.runs[i], tables[i]));
    this.drawCharts();
    this.drawLegend();
    this.tell(data.about);
    this.show(this.at, true);
    if (this.idle) this.run();
  }

  run() {
    this.idle = false;
    this.last = 0;
    requestAnimationFrame((now) => this.frame(now));
  }

  /** @param {string} text */
  tell(text) {
    const place = document.getElementById("about");
    if (place) say(place, text);
  }

  controls() {
    const bar = /** @type {HTMLElement} */ (document.getElementById("controls"));
    this.button = /** @type {HTMLButtonElement} */ (h("button.primary", { type: "button", onclick: () => this.toggle() }, "Play"));
    this.slider = /** @type {HTMLInputElement} */ (h("input", { type: "range", min: "0", max: "1000", step: "1", value: "0", "aria-label": "Time", oninput: () => this.seek((Number(this.slider?.value) / 1000) * this.until) }));
    this.clock = h("output.clock", {}, "");
    const speed = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Speed", onchange: () => (this.speed = Number(speed.value)) }, SPEEDS.map((each) => h("option", { value: String(each), selected: each === 1 }, `${each} ×`))));
    this.speeds = speed;
    this.tabs = h("div.tabs", { role: "group", "aria-label": "Colour by" });
    this.drawLegend();
    fill(bar, this.button, h("button", { type: "button", onclick: () => this.step(), title: "to the next decision (.)" }, "Next decision"), this.clock, this.slider, h("label", {}, "Speed ", speed), this.tabs);
    for (const stage of this.stages) {
      stage.chartCanvas.style.cursor = "pointer";
      stage.chartCanvas.addEventListener("click", (event) => this.seek(Math.max(0, Math.min(this.until, stage.chart?.timeAt(event.offsetX) || 0))));
    }
    addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const stage of this.stages) stage.recolour(stage.way);
      this.drawCharts();
      this.drawLegend();
    });
  }

  /** How colours are chosen, and what they mean. */
  drawLegend() {
    const way = this.stages[0].way;
    const ways = [...(this.data.kept.length > 1 ? [["tenant", "Tenant"]] : []), ["size", "Size"], ["job", "Job"]];
    fill(/** @type {HTMLElement} */ (this.tabs), ways.map(([key, title]) => h("button", { type: "button", "aria-pressed": String(key === way), onclick: () => {
      for (const stage of this.stages) stage.recolour(key);
      this.drawLegend();
    } }, title)));
    const swatch = (/** @type {string} */ colour) => {
      const made = h("i.swatch");
      made.style.background = colour;
      return made;
    };
    /** @type {[string, string][]} */
    const entries = way === "tenant" ? this.data.kept.map((/** @type {string} */ name) => [name, this.stages[0].tenants.colour(name)])
      : way === "size" ? [1, 2, 4, 8, 16, 64].map((gpus) => [plural(gpus, "GPU"), ramp(0.15 + (0.85 * Math.log2(gpus)) / 6)]) : [["every job has a colour of its own", hueOf(1)]];
    const reasons = new Set(this.stages.flatMap((stage) => [...new Set(stage.play.waits.reason)]));
    fill(/** @type {HTMLElement} */ (document.getElementById("legend")), entries.map(([name, colour]) => h("span", {}, swatch(colour), name)), h("span.quiet", {}, "below a block: why it waits"),
      [...reasons].map((reason) => h("span", {}, swatch(this.data.reasons[Number(reason)][isDark() ? 2 : 1]), this.data.reasons[Number(reason)][0])));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /** @type {HTMLElement} */ (event.target).closest("select, input, canvas")) return;
    if (event.key === " " && !/** @type {HTMLElement} */ (event.target).closest("button")) this.toggle();
    else if (event.key === ".") this.step();
    else if (event.key === "ArrowLeft") this.seek(this.at - this.until / 50);
    else if (event.key === "ArrowRight") this.seek(this.at + this.until / 50);
    else if (event.key === "Home") this.seek(0);
    else return;
    event.preventDefault();
  }

  toggle() {
    this.plays = !this.plays;
    if (this.plays && this.at >= this.until && this.data.follow === null) this.seek(0);
    if (this.button) this.button.textContent = this.plays ? "Pause" : "Play";
    if (this.plays) this.run();
    else this.idle = false;
  }

  step() {
    if (this.plays) this.toggle();
    const next = this.stages.map((stage) => stage.play.nextEvent(this.at)).filter((at) => at !== null);
    if (next.length) this.seek(Math.min(.../** @type {number[]} */ (next)));
  }

  /** @param {number} at */
  seek(at) {
    this.show(Math.max(0, Math.min(this.until, at)), true);
  }

  /** @param {number} at @param {boolean} jumps */
  show(at, jumps) {
    const begun = performance.now();
    this.at = at;
    for (const stage of this.stages) {
      stage.seek(at);
      stage.frame(jumps);
    }
    if (jumps || begun - this.spoke > TEXT_MS) {
      this.spoke = begun;
      for (const stage of this.stages) stage.tell(this.until);
      if (this.slider) this.slider.value = String(Math.round((at / this.until) * 1000));
      if (this.slider) this.slider.setAttribute("aria-valuetext", sinceStart(at));
      if (this.clock) say(this.clock, `${sinceStart(at)} of ${sinceStart(this.until)}`);
    }
    this.frames += 1;
    this.cost += performance.now() - begun;
  }

  /** @param {number} now */
  frame(now) {
    if (!this.plays) return;
    const passed = this.last ? Math.min(0.1, (now - this.last) / 1000) : 0;
    this.last = now;
    const at = Math.min(this.until, this.at + (passed * this.speed * this.until) / WHOLE_S);
    this.show(at, false);
    if (at >= this.until && this.data.follow !== null) {
      this.idle = true; // until more is known
      return;
    }
    if (at >= this.until) {
      this.toggle();
      this.seek(at);
      return;
    }
    requestAnimationFrame((next) => this.frame(next));
  }
}

const watchData = typeof document === "undefined" ? null : document.getElementById("data");
if (watchData && document.getElementById("stages")) {
  const watch = new Watch(JSON.parse(watchData.textContent || "null"));
  Object.assign(window, { rotaWatch: watch }); // for measurements
  watch.start();
}
