// @ts-check
/** Who did what, in a chain that is checked, and what happened, as it happens. */

import { get } from "./api.js";
import { fill, h, say } from "./dom.js";
import { moment, number, plural } from "./format.js";
import { button, heading, jobLink, table } from "./page.js";

const SHOWN = 300;
const KINDS = /** @type {[string, string[]][]} */ ([
  ["Who did what", []],
  ["Jobs", ["submit", "start", "run", "stop", "stopped", "done", "failed", "rejected", "cancelled", "timeout", "evicted", "move", "held", "admitted"]],
  ["Nodes", ["node_down", "node_up", "node_closed", "node_opened"]],
  ["Everything", []],
]);

/** @typedef {{lines: {number: number, at: number, actor: string, act: string, digest: string}[], next: number, end: boolean, broken: number, last: number}} AuditPage */

/**
 * What the check of lines found, in words.
 * @param {number} from the first line that was looked at
 * @param {number} to
 * @param {number} broken
 */
export function chainWords(from, to, broken) {
  if (broken) return `Line ${number(broken)} does not follow from the one before it: one of them was changed, removed or slipped in. \`rota store check\` tells more.`;
  if (to < from) return "There is no line yet.";
  return `${from === 1 ? `All ${plural(to, "line")}` : `Lines ${number(from)} to ${number(to)}`}: each follows from the one before it.`;
}

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function audit(context) {
  /** @type {any[]} */
  let rows = [];
  let after = -1;
  let kind = Math.min(KINDS.length - 1, Number(context.query.get("kind")) || 0);
  /** @type {AuditPage | null} */
  let acts = null;
  const body = h("section.card");
  const chain = h("p", { role: "status" });
  const tabs = h("div.tabs", { role: "group", "aria-label": "Which rows" });
  const tell = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ broken) => {
    say(chain, chainWords(from, to, broken));
    chain.className = broken ? "bad" : "quiet";
  };
  const check = button("Check all lines", async () => {
    for (let from = 0; ; ) {
      /** @type {AuditPage} */
      const page = await get("/audit/log", { after: from, limit: 5000 });
      from = page.next;
      tell(1, from, page.broken);
      if (page.end || page.broken) return;
    }
  }, context.fail);
  const list = h("div");
  const chained = h("div", {}, h("div.heading", {}, chain, check), list);
  const drawActs = () => {
    if (!acts) return;
    const { lines } = acts;
    if (body.firstChild !== chained) fill(body, chained); // so that its button keeps the focus
    fill(list, lines.length ? table([">Line", "When", "Who", "What", "Seal"], [...lines].reverse().map((line) => [String(line.number), moment(line.at), line.actor || "–", line.act, h("code", { title: line.digest }, line.digest.slice(0, 8))]), "Who did what, latest first")
      : h("p.empty", {}, "Nobody did anything yet."));
  };
  const drawRows = () => {
    const wanted = KINDS[kind][1];
    const shown = rows.filter((row) => !wanted.length || wanted.includes(row.event)).slice(-SHOWN).reverse();
    fill(body, shown.length ? table([">Row", "When", "What", "Job", "Text"], shown.map((row) => [String(row.number), moment(row.at), row.event.replace("_", " "), row.job ? jobLink(row.job) : "", row.text || ""]), "Rows of the log, latest first") : h("p.empty", {}, "Nothing of this kind in the latest rows."));
  };
  const draw = () => {
    fill(tabs, KINDS.map(([title], i) => h("button", { type: "button", "aria-pressed": String(i === kind), onclick: () => {
      kind = i;
      context.remember({ kind: String(kind) });
      draw();
      look();
    } }, title)));
    if (kind) drawRows();
    else drawActs();
  };
  const lookActs = async () => {
    const before = acts?.last;
    /** @type {AuditPage} */
    const found = await get("/audit/log", { limit: SHOWN });
    acts = found;
    if (found.last !== before || found.broken) tell(found.lines.length ? found.lines[0].number : 1, found.next, found.broken);
  };
  const lookRows = async () => {
    if (after < 0) after = Math.max(0, (await get("/status")).last_event - 5000);
    for (;;) {
      const page = await get("/events", { after, limit: 5000 });
      after = page.next;
      rows = [...rows, ...page.events].slice(-20000);
      if (page.end) break;
    }
  };
  const look = async () => {
    try {
      await (kind ? lookRows() : lookActs());
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
