// @ts-check
/** The page: who is there, where they look, and what they are told. */

import { ApiError, get, remove } from "./api.js";
import { Palette } from "./colours.js";
import { fill, h, say } from "./dom.js";
import { icon } from "./icons.js";
import { dropKey, keepKey, resume } from "./keys.js";
import { Live } from "./live.js";
import { isEnough, words } from "./page.js";
import { audit } from "./page-audit.js";
import { cluster } from "./page-cluster.js";
import { help } from "./page-help.js";
import { job } from "./page-job.js";
import { jobs } from "./page-jobs.js";
import { lanes } from "./page-lanes.js";
import { nodes } from "./page-nodes.js";
import { overview } from "./page-overview.js";
import { people } from "./page-people.js";
import { policy } from "./page-policy.js";
import { queues } from "./page-queues.js";
import { submit } from "./page-submit.js";

/** @typedef {import("./page.js").Context} Context */
/** @typedef {import("./page.js").View} View */

/** @type {{path: string, title: string, icon: any, role: string, key: string, show: (context: Context) => View}[]} */
const VIEWS = [
  { path: "overview", title: "Overview", icon: "overview", role: "viewer", key: "o", show: overview },
  { path: "jobs", title: "Jobs", icon: "jobs", role: "viewer", key: "j", show: (context) => (context.rest.length ? job(context) : jobs(context)) },
  { path: "submit", title: "Submit", icon: "submit", role: "user", key: "s", show: submit },
  { path: "cluster", title: "Cluster", icon: "cluster", role: "viewer", key: "c", show: cluster },
  { path: "lanes", title: "Timeline", icon: "lanes", role: "viewer", key: "t", show: lanes },
  { path: "queues", title: "Queues", icon: "queues", role: "viewer", key: "q", show: queues },
  { path: "nodes", title: "Nodes", icon: "nodes", role: "viewer", key: "n", show: nodes },
  { path: "policy", title: "Policy", icon: "policy", role: "viewer", key: "p", show: policy },
  { path: "people", title: "People", icon: "people", role: "admin", key: "u", show: people },
  { path: "audit", title: "Log", icon: "audit", role: "operator", key: "l", show: audit },
  { path: "help", title: "Help", icon: "help", role: "viewer", key: "h", show: help },
];
const THEMES = ["auto", "light", "dark"];
const STATUS = /** @type {Record<string, [string, string]>} */ ({
  live: ["Live", "good"], waiting: ["Reconnecting …", "waiting"], stranger: ["Logged out", "bad"],
});

class App {
  constructor() {
    this.live = new Live();
    this.queues = new Palette();
    /** @type {import("./page.js").Me | null} */
    this.me = null;
    /** @type {(() => void)[]} */
    this.endings = [];
    this.skew = 0; // of the daemon's clock to ours, in seconds
    this.root = /** @type {HTMLElement} */ (document.getElementById("app"));
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.notice = h("div.notice", { role: "status", "aria-live": "polite" });
    this.status = h("span.status", { role: "status" });
    this.nav = h("nav", { "aria-label": "Views" });
    this.who = h("span.who");
    this.banner = h("div.banner", { role: "alert", hidden: true });
    this.theme(localStorage.getItem("rota-theme") || "auto");
    this.live.addEventListener("change", () => (this.skew = this.live.board.now - Date.now() / 1000));
    this.live.addEventListener("status", () => this.tellStatus());
    window.addEventListener("hashchange", () => this.route());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /** @returns {Promise<void>} */
  async start() {
    let me;
    try {
      me = await get("/whoami");
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        this.welcome(); // first: a browser may take its time to look for a key, or never answer
        if (await resume().catch(() => false)) return this.start();
        return;
      }
      fill(this.main, h("p.empty", {}, words(error)));
      fill(this.root, this.main);
      setTimeout(() => this.start(), 1500);
      return;
    }
    if (this.me) return; // the welcome asked at the same time
    this.me = me;
    this.frame();
    this.live.open();
    this.route();
    keepKey().catch(() => undefined); // without it one logs in again after a restart
  }

  /** For those who are not logged in. */
  welcome() {
    this.me = null;
    const code = h("code", {}, "rota web");
    fill(this.root, h("main.welcome", { id: "main", tabindex: "-1" }, h("div.card", {},
      h("img", { src: "/assets/icon.svg", alt: "", width: "48", height: "48" }),
      h("h1", {}, "Welcome to Rota"),
      h("p", {}, "To log in, run this in a terminal where you use Rota, and open the address that it prints in this browser. The address works once, and no password or token gets here:"),
      h("pre", {}, code),
      h("p.quiet", {}, "Does your cluster have an identity provider? ", h("a", { href: "/web/oidc" }, "Log in there"), "."),
      h("p.quiet", {}, "This page goes on by itself as soon as this browser is logged in."))));
    const look = async () => {
      try {
        await get("/whoami");
        this.start();
      } catch {
        setTimeout(look, 2500);
      }
    };
    setTimeout(look, 2500);
  }

  frame() {
    const search = /** @type {HTMLInputElement} */ (h("input", { type: "search", id: "find", placeholder: "Find jobs  /", "aria-label": "Find jobs by number, name, user or queue" }));
    const form = h("form.find", { role: "search", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const text = search.value.trim();
      this.go(/^[0-9]+$/.test(text) ? `#/jobs/${text}` : `#/jobs?search=${encodeURIComponent(text)}&user=`);
      search.value = "";
    } }, search);
    const themes = h("button.plain", { type: "button", title: "Colours: as the system, light, dark", "aria-label": "Change the colours", onclick: () => this.theme(THEMES[(THEMES.indexOf(localStorage.getItem("rota-theme") || "auto") + 1) % 3]) }, icon("theme"));
    const leave = h("button.plain", { type: "button", title: "Log out", "aria-label": "Log out", onclick: () => this.logOut() }, icon("leave"));
    say(this.who, `${this.me?.name} · ${this.me?.role}`);
    fill(this.root,
      h("header.top", {}, h("a.brand", { href: "#/overview", "aria-label": "Rota, overview" }, h("img", { src: "/assets/icon.svg", alt: "", width: "26", height: "26" }), h("b", {}, "Rota")),
        this.status, form, this.who, themes, leave),
      this.nav, this.banner, this.main, this.notice);
    this.tellStatus();
  }

  tellStatus() {
    const [text, kind] = STATUS[this.live.status];
    this.status.className = `status ${kind}`;
    say(this.status, text);
    this.banner.hidden = this.live.status !== "stranger";
    if (this.live.status === "stranger") {
      fill(this.banner, "Your session has ended (it was ended, or its time was up). Run ", h("code", {}, "rota web"), " and open the address in this browser: this page then goes on where it is.");
    }
  }

  async logOut() {
    try {
      await dropKey();
      const mine = await get("/sessions");
      const here = mine.filter((/** @type {any} */ one) => one.current);
      for (const one of here.length ? here : mine.filter((/** @type {any} */ each) => each.via === "web" && each.user === this.me?.name)) await remove(`/sessions/${one.id}`);
    } catch (error) {
      this.fail(error);
      return;
    }
    this.live.close();
    this.welcome();
  }

  /** @param {string} name */
  theme(name) {
    localStorage.setItem("rota-theme", name);
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    window.dispatchEvent(new Event("resize"));
    this.live.dispatchEvent(new CustomEvent("change", { detail: null }));
  }

  /** Show what the address says. */
  route() {
    if (!this.me) return;
    const hash = location.hash;
    if (hash === "#main") return this.main.focus();
    const [path, words] = hash.replace(/^#\/?/, "").split("?");
    const [name, ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
    const view = VIEWS.find((each) => each.path === (name || "overview"));
    const me = this.me;
    for (const end of this.endings.splice(0)) end();
    this.drawNav(view?.path || "");
    this.nav.querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
    let shown;
    if (!view || !isEnough(me.role, view.role)) {
      shown = { title: "Not found", node: h("p.empty", {}, view ? `The role ${me.role} may not see this: it takes the role ${view.role}.` : "There is no such view.") };
    } else shown = view.show(this.context(rest, new URLSearchParams(words || ""), view.path));
    document.title = `${shown.title} · Rota`;
    fill(this.main, shown.node);
    this.main.scrollTop = 0;
    window.scrollTo(0, 0);
  }

  /** @param {string} current */
  drawNav(current) {
    const role = this.me?.role || "";
    fill(this.nav, VIEWS.filter((view) => isEnough(role, view.role)).map((view) =>
      h("a", { href: `#/${view.path}`, "aria-current": view.path === current ? "page" : null, title: `${view.title} (g ${view.key})` }, icon(view.icon), h("span", {}, view.title))));
  }

  /**
   * @param {string[]} rest
   * @param {URLSearchParams} query
   * @param {string} path
   * @returns {Context}
   */
  context(rest, query, path) {
    const me = /** @type {import("./page.js").Me} */ (this.me);
    const leave = (/** @type {() => void} */ act) => void this.endings.push(act);
    return {
      me, rest, query, leave, live: this.live, queues: this.queues,
      now: () => Date.now() / 1000 + this.skew,
      can: (role) => isEnough(me.role, role),
      go: (hash) => this.go(hash),
      remember: (values) => {
        const kept = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== ""));
        history.replaceState(null, "", `#/${[path, ...rest].join("/")}${kept.size ? `?${kept}` : ""}`);
      },
      fail: (error) => this.fail(error),
      done: (text) => this.say(text, "good"),
      every: (ms, act) => {
        const timer = setInterval(() => document.hidden || act(), ms);
        leave(() => clearInterval(timer));
      },
      changed: (act) => {
        const listen = (/** @type {any} */ event) => act(event.detail);
        this.live.addEventListener("change", listen);
        leave(() => this.live.removeEventListener("change", listen));
        if (this.live.board.known) act(null);
      },
    };
  }

  /** @param {string} hash */
  go(hash) {
    if (location.hash === hash) this.route();
    else location.hash = hash;
  }

  /** @param {unknown} error */
  fail(error) {
    if (error instanceof DOMException && error.name === "AbortError") return;
    if (error instanceof ApiError && (error.status === 0 || error.status === 401)) {
      if (this.live.status === "live") {
        this.live.close();
        this.live.retry();
      }
      if (error.status === 0) return; // the status says so
    }
    this.say(words(error), "bad");
  }

  /** @param {string} text @param {string} kind */
  say(text, kind) {
    const line = h(`div.${kind}`, {}, text);
    this.notice.appendChild(line);
    setTimeout(() => line.remove(), kind === "bad" ? 9000 : 4000);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, textarea, select, canvas")) return;
    if (event.key === "/") {
      document.getElementById("find")?.focus();
      event.preventDefault();
    } else if (event.key === "?") this.go("#/help");
    else if (event.key === "g") this.leading = Date.now();
    else if (Date.now() - (this.leading || 0) < 1500) {
      const view = VIEWS.find((each) => each.key === event.key);
      this.leading = 0;
      if (view) this.go(`#/${view.path}`);
    }
  }
}

const app = new App();
Object.assign(window, { rotaLive: app.live }); // for measurements
app.start();
