// @ts-check
/** Who decides and how, how fast, and what would be different under another policy or size. */

import { get, post } from "./api.js";
import { fill, h } from "./dom.js";
import { clock, duration, number } from "./format.js";
import { button, card, heading, jobLink, table } from "./page.js";

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function policy(context) {
  const now = h("dl.facts");
  const params = h("div");
  const speed = h("div");
  const result = h("div", { "aria-live": "polite" });
  const look = async () => {
    try {
      const [status, chosen] = await Promise.all([get("/status"), get("/choices")]);
      const facts = [["Policy", chosen.policy], ["Placement", chosen.placement], ["Admission", chosen.admission], ["Backend", status.backend], ["Version", status.version],
        ["Runs since", duration(context.now() - status.started_at)], ["Decisions", number(status.decisions)], ["Preemptions", number(status.preemptions)]];
      fill(now, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
      const pairs = Object.entries(chosen.parameters);
      const said = pairs.filter(([, value]) => value !== null && value !== "");
      const rest = pairs.filter((pair) => !said.includes(pair)).map(([name]) => name);
      fill(params, said.length > 0 && table(["Parameter", "Value"], said.map(([name, value]) => [h("code", {}, name), typeof value === "object" ? JSON.stringify(value) : String(value)]), "Parameters of the policy"),
        h("p.quiet", {}, !pairs.length ? "The policy has no parameters." : rest.length ? `Not set, so as the policy says: ${rest.join(", ")}.` : ""));
      fill(speed, table(["", ">How many", ">Half take at most", ">99 of 100 at most"], [["A decision", status.decision_s], ["The start of a job", status.start_s], ["A write to the store", status.commit_s]].map(([name, found]) => [
        String(name), number(found?.count), duration(found?.p50), duration(found?.p99),
      ]), "How long things take"));
      if (!choice.options.length) fill(choice, h("option", { value: "" }, `as it is (${chosen.policy})`), chosen.policies.map((/** @type {string} */ name) => h("option", { value: name }, name)));
    } catch (error) {
      context.fail(error);
    }
  };
  const choice = /** @type {HTMLSelectElement} */ (h("select", { id: "w-policy" }));
  const field = (/** @type {string} */ id, /** @type {string} */ label, /** @type {Record<string, any>} */ more) => {
    const input = /** @type {HTMLInputElement} */ (h("input", { id, ...more }));
    return { input, node: h("div.field", {}, h("label", { for: id }, label), input) };
  };
  const spelled = field("w-params", "Parameters (key=value, with commas)", { type: "text", placeholder: "queue_limits=[3600]" });
  const more = field("w-more", "More nodes", { type: "number", min: "0", max: "10000", value: "0" });
  const each = field("w-each", "GPUs of each", { type: "number", min: "1", max: "1024", value: "8" });
  const without = field("w-without", "Without these nodes", { type: "text", placeholder: "n1, n2" });
  const run = button("Compare", async () => {
    fill(result, h("p.quiet", {}, "Simulating both futures of the present queue …"));
    const chosen = choice.value;
    const body = {
      policy: chosen ? (spelled.input.value.trim() ? `${chosen}:${spelled.input.value.trim()}` : chosen) : "",
      more_nodes: Number(more.input.value) || 0, gpus_each: Number(each.input.value) || 8,
      without: without.input.value.split(/[\s,]+/).filter(Boolean),
    };
    try {
      fill(result, sideBySide(await post("/try", body), context));
    } catch (error) {
      fill(result);
      throw error;
    }
  }, context.fail, "primary");
  look();
  context.every(5000, look);
  const trial = context.can("operator") && card("What if", h("p", {}, "Pick another policy or size. The daemon simulates the present queue under it, beside the queue as it is; nothing is changed."),
    h("div.fields.short", {}, h("div.field", {}, h("label", { for: "w-policy" }, "Policy"), choice), spelled.node, more.node, each.node, without.node), h("div.actions", {}, run), result);
  return { title: "Policy", node: h("div", {}, heading("Policy"), card("In force", now, params), card("How long things take", speed), trial) };
}

/**
 * Two futures in a table, and when each waiting job starts.
 * @param {any} answer
 * @param {import("./page.js").Context} context
 */
function sideBySide(answer, context) {
  const { present, changed } = answer;
  const measures = /** @type {[string, string, (value: number) => string, boolean][]} */ ([
    ["Mean wait until the start", "mean_wait_s", duration, true], ["Longest wait", "longest_wait_s", duration, true], ["Everybody has started after", "queue_empty_s", duration, true],
    ["A job is over after (mean)", "mean_left_s", duration, true], ["All is over after", "all_done_s", duration, true], ["Preemptions", "preemptions", number, true], ["Jobs that never start", "never", number, true], ["GPUs", "gpus", number, false],
  ]);
  const name = (/** @type {any} */ one) => `${one.policy}, ${number(one.gpus)} GPUs`;
  const changedStarts = new Map(changed.starts.map((/** @type {any} */ start) => [start.job, start.starts_at]));
  const verdict = judge(present.mean_left_s, changed.mean_left_s);
  return h("div", {},
    h("p.lead", {}, present.waiting ? `${number(present.waiting)} jobs wait now. ` : "Nobody waits now. ", verdict),
    table(["", `>As it is: ${name(present)}`, `>Instead: ${name(changed)}`, ">Difference"], measures.map(([title, key, format, judged]) => [
      title, present[key] === null ? "never" : format(present[key]), changed[key] === null ? "never" : format(changed[key]), judged ? difference(present[key], changed[key]) : "",
    ]), "As it is, and instead"),
    present.starts.length > 0 && h("details", {}, h("summary", {}, "When each waiting job starts"), table(["Job", "Queue", ">GPUs", ">As it is", ">Instead"], present.starts.map((/** @type {any} */ start) => [
      jobLink(start.job, start.name), start.queue || "default", number(start.gpus), at(start.starts_at, context), at(/** @type {any} */ (changedStarts.get(start.job)), context),
    ]), "Starts")),
    h("p.quiet", {}, `Medians of ${number(answer.runs)} simulations from the present state, with the same drawn run times on both sides. No new jobs arrive; starts and stops cost nothing.`));
}

/** @param {number | null} value @param {import("./page.js").Context} context */
function at(value, context) {
  return value === null || value === undefined ? "never" : value - context.now() < 1 ? "now" : `${clock(value, context.now())} (in ${duration(value - context.now())})`;
}

/** @param {number | null} before @param {number | null} after */
function difference(before, after) {
  if (before === null || after === null) return "–";
  if (Math.abs(after - before) < 1e-9) return "none";
  if (!before) return after > 0 ? "more" : "less";
  const share = Math.round((100 * (after - before)) / before);
  return share === 0 ? "under 1 %" : `${share > 0 ? "+" : "−"}${Math.abs(share)} %`;
}

/** @param {number | null} before @param {number | null} after */
export function judge(before, after) {
  if (before === null || after === null || !before) return "";
  const share = (after - before) / before;
  if (Math.abs(share) < 0.02) return "Both are about the same for the jobs that are here now.";
  return share < 0 ? `Jobs would be over ${Math.round(-share * 100)} % earlier on average.` : `Jobs would be over ${Math.round(share * 100)} % later on average.`;
}
