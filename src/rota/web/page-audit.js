// @ts-check
/** What happened, in order, as it happens. */

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { moment } from "./format.js";
import { heading, jobLink, table } from "./page.js";

const SHOWN = 300;
const KINDS = /** @type {[string, string[]][]} */ ([
  ["What people did", ["note", "submit", "cancelled", "held", "admitted"]],
  ["Jobs", ["submit", "start", "run", "stop", "stopped", "done", "failed", "rejected", "cancelled", "timeout", "evicted", "move", "held", "admitted"]],
  ["Nodes", ["node_down", "node_up", "node_closed", "node_opened"]],
  ["Everything", []],
]);

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function audit(context) {
  /** @type {any[]} */
  let rows = [];
  let after = -1;
  let kind = Number(context.query.get("kind")) || 0;
  const body = h("section.card");
  const tabs = h("div.tabs", { role: "group", "aria-label": "Which rows" });
  const draw = () => {
    fill(tabs, KINDS.map(([title], i) => h("button", { type: "button", "aria-pressed": String(i === kind), onclick: () => {
      kind = i;
      context.remember({ kind: String(kind) });
      draw();
    } }, title)));
    const wanted = KINDS[kind][1];
    const shown = rows.filter((row) => !wanted.length || wanted.includes(row.event)).slice(-SHOWN).reverse();
    fill(body, shown.length ? table([">Row", "When", "What", "Job", "Text"], shown.map((row) => [String(row.number), moment(row.at), row.event.replace("_", " "), row.job ? jobLink(row.job) : "", row.text || ""]), "Rows of the log, latest first") : h("p.empty", {}, "Nothing of this kind in the latest rows."));
  };
  const look = async () => {
    try {
      if (after < 0) after = Math.max(0, (await get("/status")).last_event - 5000);
      for (;;) {
        const page = await get("/events", { after, limit: 5000 });
        after = page.next;
        rows = [...rows, ...page.events].slice(-20000);
        if (page.end) break;
      }
      draw();
    } catch (error) {
      context.fail(error);
    }
  };
  look();
  let seen = context.live.board.events;
  context.every(1000, () => {
    if (context.live.board.events === seen) return;
    seen = context.live.board.events;
    look();
  });
  return { title: "Log", node: h("div", {}, heading("Log"), h("div.filters", {}, tabs), body) };
}
