// @ts-check
/** What the words mean, and the keys. */

import { h } from "./dom.js";
import { JOB_STATES, REASONS } from "./format.js";
import { card, chip, heading, table } from "./page.js";

const KEYS = [["/", "find jobs"], ["?", "this page"], ["g o", "overview"], ["g j", "jobs"], ["g s", "submit"], ["g c", "cluster"], ["g t", "timeline"], ["g q", "queues"], ["g n", "nodes"], ["g p", "policy"],
  ["↑ ↓", "move in lists and on the map"], ["+ − 0", "zoom in the timeline"], ["Enter", "open"]];
/** @type {Record<string, string>} */
const STATES = {
  HELD: "Not in the queue: on request, or because its queue has no room for it yet.",
  PENDING: "In the queue. Its page says why it waits, and when it is expected to start.",
  STARTING: "It has its GPUs; its processes are being started.",
  RUNNING: "It runs.",
  STOPPING: "It was asked to save and stop, and starts again later.",
  SUCCEEDED: "It ended with exit code 0.",
  FAILED: "It ended with another code. See its errors.",
  REJECTED: "It can never run here: its message says why.",
  CANCELLED: "Somebody ended it.",
  TIMEOUT: "Its time limit ended it.",
};

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function help(context) {
  const me = context.me;
  return {
    title: "Help",
    node: h("div", {}, heading("Help"),
      card("You", h("p", {}, `You are ${me.name}, with the role ${me.role}. `, { viewer: "You can look at everything, and change nothing.", user: "You can submit jobs, and see and end your own.", operator: "You can work on all jobs and on nodes.", admin: "You can do everything." }[me.role] || "")),
      card("States of jobs", table(["State", "Meaning"], Object.keys(JOB_STATES).map((state) => [chip(state), STATES[state]]), "States of jobs")),
      card("Why jobs wait", table(["Reason", "Meaning"], Object.entries(REASONS).map(([name, text]) => [h("code", {}, name), text]), "Reasons")),
      card("Keys", table(["Key", "What it does"], KEYS.map(([key, text]) => [h("kbd", {}, key), text]), "Keys")),
      card("Elsewhere", h("p", {}, "Everything here is in the command line, too: ", h("code", {}, "rota ls"), ", ", h("code", {}, "rota show"), ", ", h("code", {}, "rota explain"), ", ", h("code", {}, "rota when"), ", ", h("code", {}, "rota logs"), ", ", h("code", {}, "rota top"), ". Programs use the ", h("a", { href: "/api/v1/openapi.json" }, "HTTP API"), "."))),
  };
}
