// @ts-check
/** Who may use the cluster: people, their tokens and sessions. */

import { get, post, remove } from "./api.js";
import { fill, h } from "./dom.js";
import { moment } from "./format.js";
import { button, card, confirmed, copyButton, heading, table } from "./page.js";

const ROLES = ["viewer", "user", "operator", "admin"];

/** @param {import("./page.js").Context} context @returns {import("./page.js").View} */
export function people(context) {
  const who = h("div");
  const tokens = h("div");
  const sessions = h("div");
  const made = h("div", { "aria-live": "polite" });
  const act = (/** @type {() => Promise<unknown>} */ ask, /** @type {string} */ told) => async () => {
    await ask();
    context.done(told);
    await look();
  };
  const roles = (/** @type {any} */ person) => {
    const select = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": `Role of ${person.name}`, disabled: person.name === context.me.name, onchange: () => act(() => post(`/people/${person.name}`, { role: select.value }), `${person.name} is ${select.value} now.`)().catch((error) => {
      context.fail(error);
      select.value = person.role;
    }) }, ROLES.map((role) => h("option", { value: role }, role))));
    select.value = person.role;
    return select;
  };
  const look = async () => {
    try {
      const [all, keys, open] = await Promise.all([get("/people"), get("/tokens"), get("/sessions")]);
      fill(who, all.length ? table(["Name", "Role", "Queues", "Most jobs", "Actions"], all.map((/** @type {any} */ person) => [
        [h("b", {}, person.name), person.disabled && h("span.quiet", {}, " disabled")], roles(person), person.queues ? person.queues.join(", ") || "none" : "as configured", person.max_jobs ?? "as configured",
        person.name === context.me.name ? "you" : person.disabled ? button("Enable", act(() => post(`/people/${person.name}/enable`), `${person.name} may come in again.`), context.fail)
          : button("Disable", async () => {
            if (await confirmed(`Let ${person.name} in no more? Their sessions end at once.`, "Disable")) await act(() => post(`/people/${person.name}/disable`), `${person.name} is disabled.`)();
          }, context.fail, "danger"),
      ]), "People") : h("p.empty", {}, "Nobody was added yet; tokens work by themselves."));
      fill(tokens, table(["Token", "Role", "Belongs to", "Until", "Actions"], keys.map((/** @type {any} */ key) => [
        h("b", {}, key.name), key.role, key.user || key.name, key.until ? moment(key.until) : "it is revoked",
        button("Revoke", async () => {
          if (await confirmed(`Make the token ${key.name} worthless?`, "Revoke")) await act(() => remove(`/tokens/${key.name}`), `The token ${key.name} is worth nothing now.`)();
        }, context.fail, "danger"),
      ]), "Tokens"));
      fill(sessions, table(["Session", "User", "Role", "By", "Since", "Until", "Actions"], open.map((/** @type {any} */ one) => [
        h("code", {}, one.id), one.user, one.role, one.via === "web" ? "browser" : one.via, moment(one.began_at), moment(one.until),
        one.current ? "this one" : button("End", act(() => remove(`/sessions/${one.id}`), "The session is over."), context.fail),
      ]), "Sessions"));
    } catch (error) {
      context.fail(error);
    }
  };
  const name = /** @type {HTMLInputElement} */ (h("input", { id: "p-name", type: "text", autocomplete: "off" }));
  const role = /** @type {HTMLSelectElement} */ (h("select", { id: "p-role" }, ROLES.map((each) => h("option", { value: each }, each))));
  role.value = "user";
  const add = button("Add person", () => act(() => post("/people", { name: name.value.trim(), role: role.value }), `${name.value.trim()} is added.`)(), context.fail, "primary");
  const token = button("Make token", async () => {
    const answer = await post("/tokens", { name: name.value.trim(), role: role.value });
    fill(made, h("p", {}, `The token of ${answer.name}, shown only now:`), h("pre", {}, answer.token), copyButton(() => answer.token, "Copy", context.fail));
    await look();
  }, context.fail);
  look();
  context.every(10000, look);
  return {
    title: "People",
    node: h("div", {}, heading("People"), card("Add", h("div.fields.short", {}, h("div.field", {}, h("label", { for: "p-name" }, "Name"), name), h("div.field", {}, h("label", { for: "p-role" }, "Role"), role)), h("div.actions", {}, add, token), made),
      card("People", who), card("Tokens", tokens), card("Sessions", sessions)),
  };
}
