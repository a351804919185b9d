// @ts-check
/** A form for a job; the daemon checks it, and says which field is wrong. */

import { ApiError, get, post } from "./api.js";
import { asCommand } from "./command.js";
import { fill, h, say } from "./dom.js";
import { forecast, verdict } from "./page-job.js";
import { button, card, copyButton, heading, words } from "./page.js";

/** @typedef {{key: string, label: string, hint: string, kind?: string, list?: string, least?: string, step?: string, wide?: boolean}} Field */

/** @type {Field[]} */
const FIELDS = [
  { key: "run", label: "Command", hint: "What the job runs, in a shell: python train.py --epochs 10", kind: "textarea", wide: true },
  { key: "name", label: "Name", hint: "For you: shown in lists" },
  { key: "queue", label: "Queue", hint: "Whose GPUs it uses", list: "queues" },
  { key: "resources.gpus", label: "GPUs", hint: "On each node; 2-8 for a job that can use any number between" },
  { key: "nodes", label: "Nodes", hint: "How many it runs on at the same time", kind: "number", least: "1" },
  { key: "resources.gpu_type", label: "GPU type", hint: "If it matters: a100, or a100|h100", list: "types" },
  { key: "estimate", label: "Expected time", hint: "How long it runs: 90m, 2h. Better forecasts for all" },
];

/** @type {Field[]} */
const MORE = [
  { key: "time_limit", label: "Time limit", hint: "It is ended after that: 4h" },
  { key: "array", label: "Array", hint: "Several jobs of one kind: 0-9, or 0-99%5" },
  { key: "resources.cpus", label: "CPU cores", hint: "0: as many as come with the GPUs", kind: "number", least: "0", step: "any" },
  { key: "resources.mem", label: "Memory", hint: "64GB" },
  { key: "resources.gpu_mem_gib", label: "GPU memory", hint: "GiB of each GPU, or of its part of one", kind: "number", least: "0", step: "any" },
  { key: "workdir", label: "Folder", hint: "Where the command runs" },
  { key: "image", label: "Image", hint: "It runs in a container: docker.io/library/python:3.12" },
  { key: "priority", label: "Priority", hint: "Higher is served earlier, if the policy says so", kind: "number" },
  { key: "priority_class", label: "Priority class", hint: "One that the cluster declares" },
  { key: "deadline", label: "Deadline", hint: "When it must be done: 12h from now" },
  { key: "retries", label: "Tries again", hint: "How often after a failure", kind: "number", least: "0" },
  { key: "backoff", label: "Pause before", hint: "How long before it is tried again: 1m; then twice that" },
  { key: "depends_on", label: "Starts after success of", hint: "Numbers or names of your jobs, with commas" },
  { key: "after_any", label: "Starts after the end of", hint: "However they end" },
  { key: "after_fail", label: "Starts after failure of", hint: "To clean up, or to try something else" },
  { key: "group", label: "Group", hint: "Jobs that belong together" },
  { key: "setup", label: "Setup", hint: "A command that prepares it", kind: "textarea", wide: true },
  { key: "envs", label: "Variables", hint: "NAME=value, one on each line", kind: "textarea", wide: true },
];
const LISTS = new Set(["depends_on", "after_any", "after_fail"]);
const NUMBERS = new Set(["nodes", "resources.cpus", "resources.gpu_mem_gib", "priority", "retries"]);

/**
 * What was typed, as the API takes it.
 * @param {Record<string, string>} typed by key
 * @param {boolean} hold
 * @returns {Record<string, any>}
 */
export function asJob(typed, hold) {
  /** @type {Record<string, any>} */
  const job = {};
  for (const [key, text] of Object.entries(typed)) {
    const value = text.trim();
    if (!value) continue;
    if (key === "resources.gpus") put(job, key, gpusOf(value));
    else if (NUMBERS.has(key)) put(job, key, Number.isNaN(Number(value)) ? value : Number(value));
    else if (LISTS.has(key)) put(job, key, value.split(/[\s,]+/).filter(Boolean));
    else if (key === "envs") put(job, key, Object.fromEntries(value.split("\n").filter((line) => line.trim()).map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1)])));
    else put(job, key, value);
  }
  if (hold) job.hold = true;
  return job;
}

/** @param {string} text */
function gpusOf(text) {
  const match = /^(\d+)\s*(?:-|:|\.\.)\s*(\d+)$/.exec(text);
  if (match) return { min: Number(match[1]), max: Number(match[2]) };
  return Number.isNaN(Number(text)) ? text : Number(text);
}

/** @param {Record<string, any>} job @param {string} key @param {any} value */
function put(job, key, value) {
  const [outer, inner] = key.split(".");
  if (inner) (job[outer] ||= {})[inner] = value;
  else job[outer] = value;
}

/**
 * The field that an error is about: messages name the key.
 * @param {string} message
 * @param {string[]} keys
 */
export function fieldOf(message, keys) {
  const byLength = [...keys].sort((a, b) => b.length - a.length);
  return byLength.find((key) => message.includes(key)) || byLength.find((key) => new RegExp(`\\b${key.split(".").pop()}\\b`).test(message)) || "";
}

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function submit(context) {
  const draft = JSON.parse(sessionStorage.getItem("rota-draft") || "{}");
  /** @type {Map<string, {input: any, error: HTMLElement}>} */
  const fields = new Map();
  const command = h("pre.command");
  const trouble = h("p.alert", { role: "alert", hidden: true });
  const told = h("div", { "aria-live": "polite" });
  const hold = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", id: "f-hold" }));
  let known = new Set(FIELDS.map((field) => field.key));
  const typed = () => Object.fromEntries([...fields].filter(([key]) => known.has(key)).map(([key, { input }]) => [key, input.value]));
  const changed = () => {
    sessionStorage.setItem("rota-draft", JSON.stringify(typed()));
    say(command, asCommand(asJob(typed(), hold.checked)));
  };
  const make = (/** @type {Field} */ field) => {
    const id = `f-${field.key.replace(".", "-")}`;
    const input = h(field.kind === "textarea" ? "textarea" : "input", {
      id, type: field.kind === "number" ? "number" : field.kind ? null : "text", min: field.least, step: field.step, list: field.list, rows: field.kind ? "3" : null,
      "aria-describedby": `${id}-hint`, autocomplete: "off", spellcheck: "false", value: draft[field.key] || "", oninput: changed,
      required: field.key === "run", name: field.key,
    });
    const error = h("span.error", { id: `${id}-error`, role: "alert" });
    fields.set(field.key, { input, error });
    return h(`div.field${field.wide ? ".wide" : ""}`, { "data-field": field.key }, h("label", { for: id }, field.label), input, h("span.hint", { id: `${id}-hint` }, field.hint), error);
  };
  const send = async () => {
    for (const { error, input } of fields.values()) {
      say(error, "");
      input.removeAttribute("aria-invalid");
    }
    trouble.hidden = true;
    try {
      const made = await post("/jobs", asJob(typed(), hold.checked), {}, { "Idempotency-Key": key });
      key = crypto.randomUUID();
      sessionStorage.removeItem("rota-draft");
      const rejected = made.find((/** @type {any} */ job) => job.state === "REJECTED");
      context.done(made.length === 1 ? `Job ${made[0].id} is submitted.` : `${made.length} jobs are submitted.`);
      context.go(rejected || made.length === 1 ? `#/jobs/${(rejected || made[0]).id}` : "#/jobs");
    } catch (error) {
      key = crypto.randomUUID();
      show(error);
    }
  };
  const show = (/** @type {unknown} */ error) => {
    if (!(error instanceof ApiError) || !error.status) return context.fail(error);
    const about = fields.get(fieldOf(error.message, [...known]));
    if (about) {
      say(about.error, error.text);
      about.input.setAttribute("aria-invalid", "true");
      const folded = about.input.closest("details");
      if (folded) folded.open = true;
      about.input.focus();
    } else {
      trouble.hidden = false;
      say(trouble, words(error));
    }
  };
  let key = crypto.randomUUID();
  const queues = h("datalist", { id: "queues" });
  const types = h("datalist", { id: "types" });
  const form = h("form.form", { novalidate: true, onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    send().catch(context.fail);
  } }, queues, types, h("div.fields", {}, FIELDS.map(make)),
  h("details", {}, h("summary", {}, "More"), h("div.fields", {}, MORE.map(make), h("label.check", {}, hold, "Hold: do not start it before it is released"))),
  trouble, told, h("div.actions", {}, h("button.primary", { type: "submit" }, "Submit"), button("When would it start?", async () => {
    fill(told, h("p.quiet", {}, "Simulating …"));
    try {
      const job = asJob(typed(), hold.checked);
      const [guess, why] = await Promise.all([post("/when", job), post("/why", job)]);
      fill(told, forecast(guess, context.now()), verdict(why));
    } catch (error) {
      fill(told);
      throw error;
    }
  }, show), button("Empty the form", async () => {
    for (const { input } of fields.values()) input.value = "";
    hold.checked = false;
    changed();
  }, context.fail)));
  hold.addEventListener("change", changed);
  const node = h("div", {}, heading("Submit a job"), h("div.split", {}, h("section.card", {}, form),
    card("The same as a command", command, copyButton(() => command.textContent || "", "Copy as command", context.fail),
      h("p.quiet", {}, "Commands run in the folder in which they are submitted; this page has none, unless you name one."))));
  const prepare = async () => {
    const [found, nodes, schema] = await Promise.all([get("/queues"), get("/nodes"), get("/openapi.json")]);
    fill(queues, found.map((/** @type {any} */ each) => h("option", { value: each.name })));
    fill(types, [...new Set(nodes.map((/** @type {any} */ each) => each.gpu_type).filter(Boolean))].map((type) => h("option", { value: type })));
    const keys = schema.components.schemas.JobFile.properties;
    known = new Set([...FIELDS, ...MORE].map((field) => field.key).filter((each) => each.split(".")[0] in keys));
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll("[data-field]"))) element.hidden = !known.has(element.dataset.field || "");
    const like = context.query.get("like");
    if (like) {
      const job = await get(`/jobs/${like}`);
      if (job.file) fromJob(job.file, fields, hold);
    }
    changed();
  };
  prepare().catch(context.fail);
  return { title: "Submit a job", node };
}

/**
 * @param {Record<string, any>} job
 * @param {Map<string, {input: any, error: HTMLElement}>} fields
 * @param {HTMLInputElement} hold
 */
function fromJob(job, fields, hold) {
  for (const [key, { input }] of fields) {
    const [outer, inner] = key.split(".");
    const value = inner ? job[outer]?.[inner] : job[outer];
    if (value === undefined || value === null) input.value = "";
    else if (key === "resources.gpus" && typeof value === "object") input.value = `${value.min}-${value.max}`;
    else if (key === "envs") input.value = Object.entries(value).map(([name, text]) => `${name}=${text}`).join("\n");
    else if (Array.isArray(value)) input.value = value.join(", ");
    else input.value = typeof value === "object" ? JSON.stringify(value) : String(value);
  }
  hold.checked = Boolean(job.hold);
}
