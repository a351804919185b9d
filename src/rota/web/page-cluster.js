// @ts-check
/** The map: every GPU, coloured by who has it. */

import { ageShare, hueOf, isDark, ramp } from "./colours.js";
import { fill, h } from "./dom.js";
import { duration, number, percent, plural } from "./format.js";
import { ClusterMap } from "./map.js";
import { card, heading } from "./page.js";
import { swatch } from "./page-overview.js";

const WAYS = /** @type {[string, string][]} */ ([["queue", "Queue"], ["job", "Job"], ["use", "Utilisation"], ["age", "Age"], ["mine", "Mine"]]);

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function cluster(context) {
  const { live, query } = context;
  let way = query.get("by") || "queue";
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { role: "application", "aria-label": "Map of the GPUs: arrow keys move, Enter opens the job. The same as a table: Nodes." }));
  const legend = h("div.legend");
  const told = h("p.quiet");
  const grey = () => (isDark() ? "#5b6472" : "#aab3c0");
  /** @type {Map<string, {fill: string, label?: string}>} */
  let painted = new Map();
  const paint = (/** @type {number} */ owner) => {
    if (!owner) return null;
    const job = live.board.jobs.get(owner);
    if (way === "job") return { fill: hueOf(owner) };
    if (!job) return { fill: grey() };
    if (way === "queue") {
      const name = job.queue || "default";
      let known = painted.get(name);
      if (!known) painted.set(name, (known = { fill: context.queues.colour(name), label: name[0].toUpperCase() }));
      return known;
    }
    if (way === "use") return job.used === null ? { fill: grey(), label: "?" } : { fill: ramp(job.used), label: String(Math.round(job.used * 100)) };
    if (way === "age") return { fill: ramp(ageShare(context.now() - job.since)) };
    return job.user === context.me.name ? { fill: hueOf(owner) } : { fill: grey() };
  };
  const whose = (/** @type {number} */ owner) => {
    const job = live.board.jobs.get(owner);
    return job ? `job ${owner}${job.name ? ` ${job.name}` : ""} of ${job.user}` : `job ${owner} of somebody else`;
  };
  const map = new ClusterMap(canvas, {
    paint,
    parts: (place) => (live.board.shared.get(place) || []).map((owner) => paint(owner)).filter((one) => one !== null),
    describe: (spot) => {
      const node = live.board.nodes[spot.node];
      const owner = live.board.owners[spot.place];
      const job = live.board.jobs.get(owner);
      const first = `${node.name}, GPU ${spot.gpu}${node.type ? ` (${node.type})` : ""}${node.state === "up" ? "" : `, ${node.state}`}`;
      if (!owner) return `${first}\nfree`;
      const sharers = live.board.shared.get(spot.place) || [];
      if (sharers.length) return [`${first}, shared by ${plural(sharers.length, "job")}`, ...sharers.map((id) => whose(id))].join("\n");
      if (!job) return `${first}\n${whose(owner)}`;
      return `${first}\n${whose(owner)}\nqueue ${job.queue || "default"}, ${plural(job.gpus, "GPU")}, for ${duration(context.now() - job.since)}${job.used === null ? "" : `, ${percent(job.used)} used`}`;
    },
    pick: (spot) => {
      const owner = live.board.owners[spot.place];
      if (owner) context.go(`#/jobs/${owner}`);
      else context.go(`#/nodes?node=${encodeURIComponent(live.board.nodes[spot.node].name)}`);
    },
  });
  context.leave(() => map.close());
  const tabs = h("div.tabs", { role: "group", "aria-label": "Colour by" });
  const drawTabs = () => fill(tabs, WAYS.map(([key, title]) => h("button", { type: "button", "aria-pressed": String(key === way), onclick: () => {
    way = key;
    context.remember({ by: way });
    drawTabs();
    map.redraw(null);
    drawLegend();
  } }, title)));
  const drawLegend = () => {
    const { used, total } = live.board.use;
    fill(told, `${number(used)} of ${number(total)} GPUs on ${plural(live.board.nodes.length, "node")} are in use.`);
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const owner of live.board.owners) {
      if (!owner) continue;
      const job = live.board.jobs.get(owner);
      const name = way === "queue" ? (job ? job.queue || "default" : "others") : way === "mine" && job?.user === context.me.name ? "yours" : "others";
      counts.set(name, (counts.get(name) || 0) + 1);
    }
    const free = h("span", {}, swatch("var(--free)"), `free ${number(total - used)}`);
    if (way === "queue" || way === "mine") {
      const names = [...counts].sort((a, b) => b[1] - a[1]);
      fill(legend, names.map(([name, count]) => h("span", {}, swatch(name === "others" ? grey() : way === "mine" ? hueOf(1) : context.queues.colour(name)), `${name} ${number(count)}`)), free);
    } else if (way === "job") fill(legend, h("span", {}, "every job has a colour of its own"), free);
    else {
      const words = way === "use" ? ["0 %", "50 %", "100 %"] : ["a minute", "hours", "a week"];
      fill(legend, [0, 0.5, 1].map((share, i) => h("span", {}, swatch(ramp(share)), words[i])), way === "use" && h("span", {}, swatch(grey()), "not told by the job"), free);
    }
  };
  drawTabs();
  context.changed((places) => {
    painted = new Map();
    if (places === null) map.set(live.board.nodes, live.board.owners);
    else {
      map.nodes = live.board.nodes;
      map.redraw(way === "use" || way === "age" ? null : places);
    }
    drawLegend();
  });
  context.every(10000, () => way === "age" && map.redraw(null));
  const node = h("div", {}, heading("Cluster"), h("div.filters", {}, h("span.quiet", {}, "Colour by"), tabs), card("GPUs", told, legend, h("div.figure", {}, canvas)),
    h("p.quiet", {}, "A block is a node, a cell is a GPU. Crossed out: the node is down or was not heard of. Cut in half: it is drained. Nodes as a table: ", h("a", { href: "#/nodes" }, "Nodes"), "."));
  Object.assign(window, { rotaMap: map }); // for measurements
  return { title: "Cluster", node };
}
