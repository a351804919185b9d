// @ts-check
/** All jobs that one may see: filter, sort, search. */

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { ago, clock, duration, JOB_STATES, OVER, REASONS, sized } from "./format.js";
import { chip, heading } from "./page.js";
import { LongTable } from "./table.js";

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function jobs(context) {
  const { query, now } = context;
  const seesAll = context.me.role !== "user";
  /** @type {Record<string, any>} */
  const wanted = {
    search: query.get("search") || "",
    state: query.getAll("state"),
    queue: query.get("queue") || "",
    user: query.get("user") ?? (seesAll && context.me.role !== "viewer" ? context.me.name : ""),
    active: query.get("active") === "true",
    array: query.get("array") || "",
  };
  if (wanted.array && !query.has("user")) wanted.user = "";
  const columns = [
    { key: "id", title: "Job", sort: "id", cell: (/** @type {any} */ job) => h("a", { href: `#/jobs/${job.id}`, "data-id": job.id }, job.id, h("span.name", {}, ` ${job.name}${job.task === null || job.task === undefined ? "" : ` [${job.task}]`}`)) },
    { key: "state", title: "State", sort: "state", cell: (/** @type {any} */ job) => [chip(job.state), job.reason && h("span.quiet.why", { title: REASONS[job.reason] || job.reason }, ` ${REASONS[job.reason] || job.reason}`)] },
    { key: "gpus", title: "GPUs", sort: "gpus", kind: "number", cell: (/** @type {any} */ job) => [sized(job), h("span.unit", {}, job.gpus === 1 && !job.elastic ? " GPU" : " GPUs")] },
    { key: "queue", title: "Queue", sort: "queue", cell: (/** @type {any} */ job) => job.queue || "default" },
    { key: "user", title: "User", sort: "user", cell: (/** @type {any} */ job) => job.user },
    { key: "submitted", title: "Submitted", sort: "submitted", cell: (/** @type {any} */ job) => h("span", { title: clock(job.submitted_at) }, ago(job.submitted_at, now())) },
    { key: "wait", title: "Waited", kind: "number", cell: (/** @type {any} */ job) => duration((job.started_at || job.ended_at || now()) - job.submitted_at) },
    { key: "run", title: "Ran", sort: "run", kind: "number", cell: (/** @type {any} */ job) => (job.started_at ? duration(job.run_s) : "–") },
  ];
  const table = new LongTable(columns, {
    what: "Jobs", sort: query.get("sort") || "id", rising: query.get("rising") === "true",
    empty: "No job fits. Change the filters, or submit one.",
    open: (job) => `#/jobs/${job.id}`,
    load: (page, signal) => get("/find/jobs", { ...wanted, ...page }, signal),
    sorted: () => keep(),
    failed: context.fail,
  });
  context.leave(() => table.close());
  const keep = () => context.remember({
    search: wanted.search, array: wanted.array, state: wanted.state[0] || "", queue: wanted.queue, active: wanted.active ? "true" : "",
    user: wanted.user, sort: table.sort === "id" ? "" : table.sort, rising: table.rising ? "true" : "",
  });
  const again = () => {
    keep();
    table.view.scrollTop = 0;
    table.restart();
  };
  let timer = 0;
  const search = h("input", { type: "search", "aria-label": "Search in number, name, user, queue and group", placeholder: "Search", value: wanted.search, oninput: (/** @type {any} */ event) => {
    wanted.search = event.target.value;
    clearTimeout(timer);
    timer = window.setTimeout(again, 200);
  } });
  const state = h("select", { "aria-label": "State", onchange: (/** @type {any} */ event) => {
    const value = event.target.value;
    wanted.active = value === "active";
    wanted.state = value && value !== "active" ? [value] : [];
    again();
  } }, h("option", { value: "" }, "All states"), h("option", { value: "active" }, "Not finished"),
  ...Object.entries(JOB_STATES).map(([key, { word }]) => h("option", { value: key }, word)));
  /** @type {HTMLSelectElement} */ (state).value = wanted.active ? "active" : wanted.state[0] || "";
  const queue = h("select", { "aria-label": "Queue", onchange: (/** @type {any} */ event) => {
    wanted.queue = event.target.value;
    again();
  } }, h("option", { value: "" }, "All queues"));
  const mine = seesAll && context.me.role !== "viewer" && h("label.check", {}, h("input", { type: "checkbox", checked: wanted.user === context.me.name, onchange: (/** @type {any} */ event) => {
    wanted.user = event.target.checked ? context.me.name : "";
    again();
  } }), "Only mine");
  get("/queues").then((found) => {
    fill(queue, h("option", { value: "" }, "All queues"), found.map((/** @type {any} */ each) => h("option", { value: each.name }, each.name || "default")));
    /** @type {HTMLSelectElement} */ (queue).value = wanted.queue;
  }).catch(context.fail);
  const node = h("div.fills", {}, heading(seesAll ? "Jobs" : "Your jobs", context.can("user") && h("a.button.primary", { href: "#/submit" }, "Submit a job")),
    h("div.filters", { role: "search" }, search, state, queue, mine, wanted.array && h("span.quiet", {}, `Only of array ${wanted.array}`)), table.node);
  table.restart();
  let seen = context.live.board.events;
  let last = Date.now();
  context.every(1000, () => {
    const moved = context.live.board.events !== seen;
    if (moved || Date.now() - last > 15000) {
      seen = context.live.board.events;
      last = Date.now();
      table.refresh();
    }
  });
  return { title: seesAll ? "Jobs" : "Your jobs", node };
}

/** @param {any} job */
export function isOver(job) {
  return OVER.has(job.state);
}
