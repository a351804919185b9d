// @ts-check
/** Nodes: what they have, how they are, and what happened to them. */

import { get, post, remove } from "./api.js";
import { fill, h } from "./dom.js";
import { duration, moment, number } from "./format.js";
import { bar, button, card, chip, confirmed, heading, jobLink, table } from "./page.js";

/** @type {Record<string, string>} */
const STORY = { node_down: "down", node_up: "up again", node_closed: "closed: nothing more is started there", node_opened: "open again" };

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function nodes(context) {
  const body = h("div");
  const story = h("ol.story");
  const wanted = context.query.get("node") || "";
  const filter = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "Filter by name, state or type", "aria-label": "Filter nodes", value: wanted, oninput: () => draw() }));
  /** @type {any[]} */
  let found = [];
  const act = (/** @type {() => Promise<unknown>} */ ask, /** @type {string} */ told) => async () => {
    await ask();
    context.done(told);
    await look();
  };
  const actions = (/** @type {any} */ node) => {
    const path = `/nodes/${encodeURIComponent(node.name)}`;
    const drained = node.state === "draining" || node.state === "drained";
    return h("div.actions", {},
      !drained && node.state !== "down" && button("Drain", act(() => post(`${path}/drain`), `${node.name} is drained: nothing more is started there.`), context.fail),
      node.state !== "down" && node.jobs.length > 0 && button("Drain and stop jobs", async () => {
        if (await confirmed(`Stop ${node.jobs.length === 1 ? "the job" : `the ${node.jobs.length} jobs`} on ${node.name}? They go back to the queue and start elsewhere.`, "Stop them")) {
          await act(() => post(`${path}/drain`, undefined, { stop: "true" }), `${node.name} is being emptied.`)();
        }
      }, context.fail, "danger"),
      drained && button("Use again", act(() => post(`${path}/undrain`), `${node.name} is in use again.`), context.fail),
      (node.state === "down" || node.state === "drained") && button("Remove", async () => {
        if (await confirmed(`Forget ${node.name}? It is there again when its agent is.`, "Forget it")) await act(() => remove(path), `${node.name} is removed.`)();
      }, context.fail));
  };
  const draw = () => {
    const words = filter.value.toLowerCase();
    const shown = found.filter((node) => [node.name, node.state, node.gpu_type].some((text) => text.toLowerCase().includes(words)));
    const most = 300;
    fill(body, found.length ? table(["Node", "State", "In use", ">GPUs free", "Type", ">Cores", ">Memory", "Jobs", ...(context.can("operator") ? ["Actions"] : [])], shown.slice(0, most).map((node) => [
      h("b", {}, node.name), [chip(node.state), node.why && h("div.quiet", {}, node.why)], bar(node.gpus ? 1 - node.free_gpus / node.gpus : 0, `${node.name} in use`),
      `${number(node.free_gpus)} of ${number(node.gpus)}`, node.gpu_type || "–", number(node.cpus) === "0" ? "–" : number(node.cpus), node.mem_gib ? `${number(node.mem_gib)} GiB` : "–",
      [...node.jobs.slice(0, 4).flatMap((/** @type {string} */ id, /** @type {number} */ i) => [i ? ", " : "", jobLink(id)]), node.jobs.length > 4 ? ` and ${node.jobs.length - 4} more` : "",
        node.stopping.length > 0 && h("div.quiet", {}, `stopping ${node.stopping.length}, at most ${duration(node.stopping_s)}`)],
      ...(context.can("operator") ? [actions(node)] : []),
    ]), "Nodes") : h("p.empty", {}, "There are no nodes yet: start an agent on a machine (rota agent)."),
    shown.length > most && h("p.quiet", {}, `${shown.length - most} more: filter to see them.`));
  };
  const look = async () => {
    try {
      found = await get("/nodes");
      draw();
    } catch (error) {
      context.fail(error);
    }
  };
  const history = async () => {
    const { last_event: last } = await get("/status");
    const page = await get("/events", { after: Math.max(0, last - 5000), limit: 5000 });
    const rows = page.events.filter((/** @type {any} */ row) => row.event in STORY).slice(-60).reverse();
    fill(story, rows.length ? rows.map((/** @type {any} */ row) => h("li", {}, h("time", {}, moment(row.at)), h("span", {}, `${names.get(row.ref) || `node ${row.ref}`} ${STORY[row.event]}${row.text ? ` (${row.text})` : ""}`))) : h("li.quiet", {}, "Nothing in the latest 5,000 rows of the log."));
  };
  /** @type {Map<number, string>} */
  const names = new Map();
  const learn = async () => {
    let after = 0;
    for (let pages = 0; pages < 3; pages += 1) {
      const page = await get("/events", { after, limit: 2000 });
      for (const row of page.events) if (row.event === "vertex" && row.text?.startsWith("node:")) names.set(row.ref, row.text.slice(5));
      after = page.next;
      if (page.end) break;
    }
    await history();
  };
  look();
  learn().catch(context.fail);
  let seen = -1;
  context.every(1000, () => {
    if (context.live.board.events === seen) return;
    seen = context.live.board.events;
    look();
    history().catch(context.fail);
  });
  return { title: "Nodes", node: h("div", {}, heading("Nodes"), h("div.filters", {}, filter), h("section.card", {}, body), card("What happened", story)) };
}
