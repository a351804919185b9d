"use strict";
// Draws the pictures of a report on canvases. No library, no request; every text is set as text.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const $ = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const charts = {};
  const hidden = new Set(); // policies that the legends switched off
  const painters = []; // of legends, whose colours are those of the theme
  let shown = 0; // the run of which there are pictures over time

  // --- words ---------------------------------------------------------------------------------
  const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  const tidy = (number) => String(Number(number.toPrecision(4)));
  const two = (number) => String(number).padStart(2, "0");
  // How long, as everywhere in Rota: "3d 04h", "2h 04m", "4m 05s", "37.5 s".
  function duration(s) {
    for (let i = 0; i < 3; i++) {
      const [size, unit] = UNITS[i], [small, name] = UNITS[i + 1], whole = Math.round(s / small) * small;
      if (whole >= size) return Math.floor(whole / size) + unit + " " + two(Math.round(whole % size / small)) + name;
    }
    return Number(s.toPrecision(3)) + " s";
  }
  const brief = (s) => (s ? duration(s).replace(/ 00[smh]$/, "") : "0"); // of a round time
  // When: "1 d 03:42:10", as exact as a step (in seconds) can tell.
  function clock(s, step) {
    const digits = step < 1 ? Math.min(3, Math.ceil(-Math.log10(step))) : 0;
    const unit = step >= 60 ? 60 : 10 ** -digits;
    let at = Math.max(0, Math.round(s / unit) * unit);
    const days = Math.floor((at + unit / 2) / 86400);
    at = Math.max(0, at - days * 86400);
    const hours = Math.floor((at + unit / 2) / 3600), minutes = Math.floor((at - hours * 3600 + unit / 2) / 60);
    const seconds = Math.max(0, at - hours * 3600 - minutes * 60);
    const fine = step >= 60 ? "" : ":" + seconds.toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
    return (time.full[1] >= 86400 ? days + "d " : "") + two(hours) + ":" + two(minutes) + fine;
  }
  const percent = (share) => (share * 100).toFixed(1) + " %";
  const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200,
    86400, 172800, 432000, 864000, 1728000, 4320000, 8640000, 17280000, 31536000];

  function timeTicks([from, to], count, write) {
    const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, ...STEPS].find((s) => (to - from) / s <= count) ||
      Math.ceil((to - from) / count / 31536000) * 31536000;
    const ticks = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) ticks.push([i * step, write(i * step, step)]);
    return ticks;
  }
  const moment = (s, step) => (step >= 86400 ? Math.round(s / 86400) + "d" : clock(s, step));
  const LOG_TIMES = [0.1, 1, 10, 60, 600, 3600, 36000, 345600, 3456000, 31536000];
  const FINE_TIMES = [0.1, 0.5, ...STEPS, 63072000];
  function logTicks([from, to]) { // of exponents
    const inside = (times) => times.filter((t) => Math.log10(t) >= from && Math.log10(t) <= to);
    let times = inside(LOG_TIMES);
    if (times.length < 4) times = inside(FINE_TIMES);
    return times.map((t) => [Math.log10(t), brief(t)]);
  }
  function niceTicks(top, count) {
    if (!(top > 0)) return [0];
    const raw = top / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= raw);
    const ticks = [];
    for (let i = 0; i * step <= top * 1.0001; i++) ticks.push(i * step);
    return ticks;
  }

  // --- ranges: what part of an axis is in view -----------------------------------------------
  class Range {
    constructor(from, to) { this.full = [from, to > from ? to : from + 1]; this.at = [...this.full]; this.users = []; }
    set(from, to) {
      const least = (this.full[1] - this.full[0]) * 1e-5;
      if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
      const length = Math.min(to - from, this.full[1] - this.full[0]);
      from = Math.min(Math.max(from, this.full[0]), this.full[1] - length);
      this.at = [from, from + length];
      this.users.forEach((user) => user());
    }
    zoom(factor, share = 0.5) {
      const [a, b] = this.at, centre = a + (b - a) * share;
      this.set(centre - (centre - a) * factor, centre + (b - centre) * factor);
    }
    move(share) { const d = (this.at[1] - this.at[0]) * share; this.set(this.at[0] + d, this.at[1] + d); }
    reset() { this.set(...this.full); }
    get whole() { return this.at[0] === this.full[0] && this.at[1] === this.full[1]; }
  }

  // --- one picture ---------------------------------------------------------------------------
  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    return { mode: get("--mode"), fg: get("--fg"), soft: get("--soft"), grid: get("--grid"), line: get("--line"), bg: get("--bg"), up: get("--up") };
  };
  const tip = $("#tip");
  function tell(text, event) {
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    tip.style.left = Math.max(4, x) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4)) + "px";
  }

  class Chart {
    // options: height, margins, label, x (Range), y (Range, to zoom in both), draw(chart), hover(x, y)
    constructor(name, options) {
      Object.assign(this, { left: 58, right: 14, top: 8, bottom: 30, height: 240 }, options);
      this.name = name;
      this.host = $(`[data-chart="${name}"]`);
      this.canvas = document.createElement("canvas");
      this.canvas.setAttribute("role", "img");
      this.canvas.setAttribute("aria-label", options.label);
      this.host.append(this.canvas);
      this.cross = this.overlay("cross");
      this.band = this.overlay("band");
      charts[name] = this;
      if (this.x) {
        this.x.users.push(() => this.later());
        this.canvas.tabIndex = 0;
        this.canvas.classList.add("zooms");
        this.listen();
      }
      this.canvas.addEventListener("pointermove", (e) => this.hovered(e));
      this.canvas.addEventListener("pointerleave", () => { tell(""); this.cross.hidden = true; });
      new ResizeObserver(() => this.draw()).observe(this.host);
    }
    overlay(kind) {
      const box = document.createElement("div");
      box.className = kind;
      box.hidden = true;
      this.host.append(box);
      return box;
    }
    later() {
      if (this.waiting) return;
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.draw(); });
    }
    draw() {
      const begun = performance.now(), scale = window.devicePixelRatio || 1;
      this.w = Math.max(this.host.clientWidth, 120);
      this.h = typeof this.height === "function" ? this.height() : this.height;
      this.canvas.style.height = this.h + "px";
      const width = Math.round(this.w * scale), height = Math.round(this.h * scale);
      if (this.canvas.width !== width || this.canvas.height !== height) { this.canvas.width = width; this.canvas.height = height; }
      const c = (this.c = this.canvas.getContext("2d"));
      c.setTransform(scale, 0, 0, scale, 0, 0);
      this.t = theme();
      c.fillStyle = this.t.bg;
      c.fillRect(0, 0, this.w, this.h);
      c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      c.textBaseline = "middle";
      this.paint(this);
      return (this.took = performance.now() - begun);
    }
    get inner() { return [this.left, this.top, this.w - this.left - this.right, this.h - this.top - this.bottom]; }
    px(value) { const [a, b] = this.x.at; return this.left + (value - a) / (b - a) * this.inner[2]; }
    at(px) { const [a, b] = this.x.at; return a + (px - this.left) / this.inner[2] * (b - a); }
    py(value) { const [a, b] = this.ys; return this.h - this.bottom - (value - a) / (b - a) * this.inner[3]; }
    clip(inside) {
      this.c.save();
      this.c.beginPath();
      this.c.rect(...this.inner);
      this.c.clip();
      inside();
      this.c.restore();
    }
    xAxis(ticks) {
      const { c, t } = this, [left, top, width, height] = this.inner;
      c.fillStyle = t.soft; c.strokeStyle = t.grid; c.textAlign = "center"; c.lineWidth = 1;
      let last = -1e9;
      for (const [value, label] of ticks) {
        const x = Math.round(this.px(value)) + 0.5, half = c.measureText(label).width / 2;
        c.beginPath(); c.moveTo(x, top); c.lineTo(x, top + height); c.stroke();
        if (x - half < last + 8 || x + half > this.w) continue;
        c.fillText(label, x, top + height + 16);
        last = x + half;
      }
      c.strokeStyle = t.line;
      c.beginPath(); c.moveTo(left, top + height + 0.5); c.lineTo(left + width, top + height + 0.5); c.stroke();
    }
    yAxis(ticks, write) {
      const { c, t } = this, [left, , width] = this.inner;
      c.fillStyle = t.soft; c.strokeStyle = t.grid; c.textAlign = "right"; c.lineWidth = 1;
      for (const value of ticks) {
        const y = Math.round(this.py(value)) + 0.5;
        c.beginPath(); c.moveTo(left, y); c.lineTo(left + width, y); c.stroke();
        c.fillText(write(value), left - 8, y);
      }
    }
    place(event) {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }
    hovered(event) {
      const [x, y] = this.place(event), [left, top, width, height] = this.inner;
      const inside = x >= left && x <= left + width && y >= top && y <= top + height;
      const text = !this.dragged && this.hover && inside ? this.hover(x, y) : "";
      tell(text, event);
      this.cross.hidden = !(text && this.x && this.line !== false);
      if (!this.cross.hidden) Object.assign(this.cross.style, { left: x + "px", top: top + "px", height: height + "px" });
    }
    // Drag: zoom to a part; shift and drag: move; wheel with Ctrl; keys; double-click: everything.
    listen() {
      const canvas = this.canvas;
      canvas.addEventListener("pointerdown", (e) => {
        if (e.button) return;
        const [x, y] = this.place(e);
        this.dragged = { x, y, shift: e.shiftKey, from: [...this.x.at], rows: this.y && [...this.y.at] };
        canvas.setPointerCapture(e.pointerId);
        tell("");
      });
      canvas.addEventListener("pointermove", (e) => {
        if (!this.dragged) return;
        const [x, y] = this.place(e), d = this.dragged, [left, top, width, height] = this.inner;
        if (d.shift) {
          const by = (x - d.x) / width * (d.from[1] - d.from[0]);
          this.x.set(d.from[0] - by, d.from[1] - by);
          if (this.y) { const up = (y - d.y) / height * (d.rows[1] - d.rows[0]); this.y.set(d.rows[0] - up, d.rows[1] - up); }
          return;
        }
        const x0 = Math.max(left, Math.min(x, d.x)), x1 = Math.min(left + width, Math.max(x, d.x));
        const tall = this.y && Math.abs(y - d.y) > 12;
        const y0 = tall ? Math.max(top, Math.min(y, d.y)) : top, y1 = tall ? Math.min(top + height, Math.max(y, d.y)) : top + height;
        this.band.hidden = x1 - x0 < 4;
        Object.assign(this.band.style, { left: x0 + "px", width: Math.max(x1 - x0, 0) + "px", top: y0 + "px", height: y1 - y0 + "px" });
        d.box = x1 - x0 < 4 ? null : [x0, x1, tall ? y0 : null, y1];
      });
      const leave = () => {
        const d = this.dragged;
        this.dragged = null;
        this.band.hidden = true;
        if (!d || !d.box || d.shift) return;
        const [x0, x1, y0, y1] = d.box;
        if (y0 !== null) { const [, top, , height] = this.inner, [a, b] = this.y.at, s = (b - a) / height; this.y.set(a + (y0 - top) * s, a + (y1 - top) * s); }
        this.x.set(this.at(x0), this.at(x1));
      };
      canvas.addEventListener("pointerup", leave);
      canvas.addEventListener("pointercancel", leave);
      canvas.addEventListener("dblclick", () => { this.x.reset(); if (this.y) this.y.reset(); });
      canvas.addEventListener("wheel", (e) => {
        if (!e.ctrlKey) return;
        e.preventDefault();
        this.x.zoom(Math.exp(e.deltaY * 0.002), (this.place(e)[0] - this.left) / this.inner[2]);
      }, { passive: false });
      canvas.addEventListener("keydown", (e) => {
        const act = { "+": () => this.x.zoom(0.5), "=": () => this.x.zoom(0.5), "-": () => this.x.zoom(2),
          ArrowLeft: () => this.x.move(-0.2), ArrowRight: () => this.x.move(0.2),
          ArrowUp: this.y && (() => this.y.move(-0.2)), ArrowDown: this.y && (() => this.y.move(0.2)),
          0: () => { this.x.reset(); if (this.y) this.y.reset(); } }[e.key];
        if (act && !e.ctrlKey && !e.metaKey) { e.preventDefault(); act(); }
      });
    }
  }

  // --- parts of pictures ---------------------------------------------------------------------
  const palette = () => D.colours[theme().mode];
  const colourOf = (policy) => palette()[D.policies.indexOf(policy) % palette().length];
  const dashOf = (policy) => D.dashes[D.policies.indexOf(policy)].map((d) => d * 2);
  // Points: another shape when the colours begin again.
  function point(c, policy, x, y, size) {
    const shape = Math.floor(D.policies.indexOf(policy) / palette().length) % 4, turn = [0, Math.PI / 4, -Math.PI / 2, 0][shape];
    c.beginPath();
    if (!shape) { c.arc(x, y, size, 0, 7); return; }
    const corners = shape === 2 ? 3 : 4;
    for (let i = 0; i < corners; i++) {
      const angle = turn + i / corners * 2 * Math.PI;
      c.lineTo(x + 1.25 * size * Math.cos(angle), y + 1.25 * size * Math.sin(angle));
    }
    c.closePath();
  }
  // The last index with xs[i] <= x, or -1.
  function before(xs, x) {
    let low = 0, high = xs.length;
    while (low < high) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle + 1; else high = middle; }
    return low - 1;
  }
  function steps(chart, xs, ys, colour, dash) {
    const c = chart.c, [from, to] = chart.x.at;
    c.beginPath();
    let y = null;
    for (let i = Math.max(before(xs, from), 0); i < xs.length; i++) {
      const x = chart.px(xs[i]), next = chart.py(ys[i]);
      if (y === null) c.moveTo(x, next); else { c.lineTo(x, y); c.lineTo(x, next); }
      y = next;
      if (xs[i] > to) break;
    }
    c.strokeStyle = colour; c.lineWidth = 1.8; c.setLineDash(dash);
    c.stroke();
    c.setLineDash([]);
  }
  function stacked(chart, xs, layers, colours) { // values of xs[i] hold until xs[i + 1]
    const c = chart.c, [from, to] = chart.x.at;
    const first = Math.max(before(xs, from), 0), base = new Float64Array(xs.length);
    layers.forEach((ys, k) => {
      const edge = [];
      let last = first;
      for (let i = first; i < xs.length - 1; i++) { edge.push([xs[i], xs[i + 1], base[i], base[i] + ys[i]]); last = i; if (xs[i] > to) break; }
      c.beginPath();
      edge.forEach(([a, b, , y], i) => { const v = chart.py(y); if (i) c.lineTo(chart.px(a), v); else c.moveTo(chart.px(a), v); c.lineTo(chart.px(b), v); });
      for (const [a, b, y] of edge.reverse()) { const v = chart.py(y); c.lineTo(chart.px(b), v); c.lineTo(chart.px(a), v); }
      c.closePath();
      c.fillStyle = colours[k];
      c.fill();
      for (let i = first; i <= last; i++) base[i] += ys[i];
    });
  }
  function keys(name, entries) {
    const host = $(`[data-keys="${name}"]`);
    host.replaceChildren(...entries.map(([label, colour]) => {
      const item = document.createElement("span"), mark = document.createElement("i");
      mark.style.background = colour;
      item.append(mark, label);
      return item;
    }));
  }
  function legends() {
    for (const host of all("[data-legend]")) {
      host.replaceChildren(...D.looks.map(({ policy }) => {
        const button = document.createElement("button"), swatch = document.createElement("canvas");
        button.type = "button";
        button.dataset.policy = policy;
        button.setAttribute("aria-pressed", String(!hidden.has(policy)));
        swatch.width = 68; swatch.height = 24;
        const c = swatch.getContext("2d");
        c.scale(2, 2); c.strokeStyle = colourOf(policy); c.lineWidth = 2.5; c.setLineDash(dashOf(policy));
        c.beginPath(); c.moveTo(1, 6); c.lineTo(33, 6); c.stroke();
        button.append(swatch, D.short[policy]);
        button.title = policy;
        button.addEventListener("click", () => {
          if (!hidden.delete(policy)) hidden.add(policy);
          const index = all("[data-legend]").indexOf(host);
          legends();
          [...all("[data-legend]")[index].children].find((b) => b.dataset.policy === policy).focus();
          ["cdf-jct_s", "cdf-wait_s", "queue"].forEach((n) => charts[n].later());
        });
        return button;
      }));
    }
  }
  const visible = () => D.looks.filter((look) => !hidden.has(look.policy));
  const look = () => D.looks[shown];
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const floats = (text) => new Float32Array(bytes(text).buffer);

  // --- distributions -------------------------------------------------------------------------
  function cdfChart(column, label) {
    const least = 1, longest = Math.max(10, ...D.looks.map((l) => l.cdf[column][0].at(-1) || 0));
    const logs = new Map(D.looks.map((l) => [l, Float64Array.from(l.cdf[column][0], (s) => Math.log10(Math.max(s, least)))]));
    new Chart("cdf-" + column, {
      label, height: 300, x: new Range(Math.log10(least), Math.log10(longest) + 0.05), ys: [0, 1.02],
      paint(chart) {
        const ticks = logTicks(chart.x.at);
        if (ticks.length && ticks[0][0] === 0 && column === "wait_s") ticks[0][1] = "\u2264 1 s";
        chart.xAxis(ticks);
        chart.yAxis([0, 0.25, 0.5, 0.75, 1], (v) => v * 100 + " %");
        if (column === "wait_s" && !D.looks.some((l) => l.cdf[column][0].at(-1) > 0)) {
          chart.c.fillStyle = chart.t.fg; chart.c.textAlign = "center";
          chart.c.fillText("nobody waited", chart.left + chart.inner[2] / 2, chart.top + chart.inner[3] / 2);
        }
        chart.clip(() => visible().forEach((l) => {
          const xs = logs.get(l);
          steps(chart, [Math.log10(least), ...xs, 99], [xs[0] > 0 ? 0 : l.cdf[column][1][0] || 0, ...l.cdf[column][1], 1], colourOf(l.policy), dashOf(l.policy));
        }));
      },
      hover(x) {
        const at = charts["cdf-" + column].at(x);
        const lines = visible().map((l) => {
          const i = before(logs.get(l), at);
          return percent(i < 0 ? 0 : l.cdf[column][1][i]).padStart(8) + "  " + l.policy;
        });
        return ["within " + duration(10 ** at), ...lines].join("\n");
      },
    });
  }

  // --- over time -----------------------------------------------------------------------------
  const time = new Range(0, Math.max(1, ...D.looks.map((l) => l.until_s)));
  const onTime = (chart) => chart.xAxis(timeTicks(chart.x.at, Math.max(3, Math.floor(chart.w / 110)), moment));
  const SIDE = 92; // the left margin of all pictures over time: the same time is at the same place
  const pixel = (chart) => (chart.x.at[1] - chart.x.at[0]) / chart.inner[2];
  const now = (chart, at) => "at " + clock(at, pixel(chart));
  const top = (values) => values.reduce((a, b) => Math.max(a, b), 0);

  function queueChart() {
    new Chart("queue", {
      label: "Jobs that wait or run, over time, for every policy", x: time, left: SIDE, height: 230,
      paint(chart) {
        const what = $("#queue-of").value;
        const most = Math.max(1, ...visible().map((l) => top(l.queue[what])));
        chart.ys = [0, most * 1.05];
        chart.yAxis(niceTicks(most, 4), tidy);
        onTime(chart);
        chart.clip(() => visible().forEach((l) => steps(chart, l.queue.time_s, l.queue[what], colourOf(l.policy), dashOf(l.policy))));
      },
      hover(x) {
        const what = $("#queue-of").value, at = charts.queue.at(x);
        const lines = visible().map((l) => {
          const i = before(l.queue.time_s, at);
          return tidy(i < 0 || at > l.until_s ? 0 : l.queue[what][i]).padStart(8) + "  " + l.policy;
        });
        return [now(charts.queue, at) + ": " + what, ...lines].join("\n");
      },
    });
  }

  function utilisationChart() {
    new Chart("utilisation", {
      label: "GPUs by use, over time", x: time, left: SIDE, height: 200,
      paint(chart) {
        const u = look().utilisation, most = Math.max(1, top(u.capacity));
        const overhead = u.allocated.map((a, i) => Math.max(a - u.useful[i], 0));
        chart.ys = [0, most * 1.05];
        chart.yAxis(niceTicks(most, 4), tidy);
        onTime(chart);
        chart.clip(() => {
          stacked(chart, u.time_s, [u.useful, overhead], [D.uses.useful, D.uses.overhead]);
          steps(chart, u.time_s, u.capacity, chart.t.up, []);
        });
      },
      hover(x) {
        const u = look().utilisation, at = charts.utilisation.at(x), i = before(u.time_s, at);
        if (i < 0 || at > look().until_s) return "";
        return [now(charts.utilisation, at), tidy(u.useful[i]) + " GPUs useful", tidy(u.allocated[i]) + " allocated",
          tidy(u.capacity[i]) + " up", tidy(u.down[i]) + " down"].join("\n");
      },
    });
  }

  const tenantColours = () => [...palette(), "#ddaa77", "#bbbbbb"];
  const binEdges = (bins) => Float64Array.from({ length: bins + 1 }, (_, i) => i / bins * look().until_s);
  function tenantsChart() {
    new Chart("tenants", {
      label: "Share of the GPUs by tenant, over time", x: time, left: SIDE, height: 220, ys: [0, 1],
      paint(chart) {
        const t = look().tenants;
        chart.yAxis([0, 0.25, 0.5, 0.75, 1], (v) => v * 100 + " %");
        onTime(chart);
        if (t.shares.length) chart.clip(() => stacked(chart, binEdges(t.shares[0].length), t.shares, tenantColours()));
      },
      hover(x) {
        const t = look().tenants, at = charts.tenants.at(x);
        if (!t.shares.length || at > look().until_s) return "";
        const i = Math.min(Math.floor(at / look().until_s * t.shares[0].length), t.shares[0].length - 1);
        const lines = t.names.map((name, k) => percent(t.shares[k][i]).padStart(8) + "  " + name);
        return [now(charts.tenants, at), ...lines.reverse()].join("\n");
      },
    });
  }

  // --- on GPUs -------------------------------------------------------------------------------
  const RAMPS = { light: [[0, 34, 78], [55, 66, 109], [112, 112, 116], [176, 165, 110], [254, 232, 56]],
    dark: [[62, 92, 150], [96, 114, 152], [136, 136, 140], [190, 178, 118], [255, 236, 90]] };
  const REDS = { light: [204, 51, 17], dark: [255, 95, 60] };
  function ramp(share) {
    const RAMP = RAMPS[theme().mode], at = Math.min(share, 0.9999) * (RAMP.length - 1), i = Math.floor(at);
    return RAMP[i].map((v, k) => Math.round(v + (RAMP[i + 1][k] - v) * (at - i)));
  }
  const heatImages = new Map(); // by what `heat` and `fragments` of a run hold
  const brightest = (name) => Math.max(0.1, ...D.looks.map((l) => (l[name] ? l[name].top : 0)));
  function heatImage(heat, most) {
    if (!heatImages.has(heat)) {
      const red = REDS[theme().mode], colours = Array.from({ length: 251 }, (_, i) => ramp(i / 250 * heat.top / most));
      const cells = bytes(heat.cells), image = document.createElement("canvas");
      image.width = heat.bins;
      image.height = Math.max(heat.nodes.length, 1);
      const c = image.getContext("2d"), data = c.createImageData(image.width, image.height);
      cells.forEach((cell, i) => data.data.set([...(cell === 255 ? red : colours[cell]), 255], i * 4));
      c.putImageData(data, 0, 0);
      heatImages.set(heat, { image, cells });
    }
    return heatImages.get(heat);
  }
  function nodeLabels(chart, names, edges, [from, to]) { // edges: where rows of each node begin
    const { c, t } = chart, [left, top, width, height] = chart.inner;
    c.fillStyle = t.soft; c.textAlign = "right";
    let last = -1e9;
    names.forEach((name, i) => {
      const y = top + ((edges[i] + edges[i + 1]) / 2 - from) / (to - from) * height;
      if (y < top || y > top + height || y - last < 13) return;
      const short = name.length > 12 ? "\u2026" + name.slice(-11) : name; // what differs is at the end
      c.fillText(short, left - 6, y);
      last = y;
    });
  }
  const NO_HEAT = { nodes: [], bins: 0 }; // of a run whose jobs were on no nodes
  function heatChart(name, label, what) {
    const heatOf = (l) => l[name] || NO_HEAT, most = brightest(name);
    new Chart(name, {
      label, x: time, left: SIDE,
      height: () => Math.min(Math.max(heatOf(look()).nodes.length * 9, 90), 420) + 38,
      paint(chart) {
        const l = look(), { nodes, bins } = heatOf(l), [left, top, width, height] = chart.inner;
        onTime(chart);
        if (!bins) {
          chart.c.fillStyle = chart.t.fg; chart.c.textAlign = "center";
          chart.c.fillText("not known of this run", left + width / 2, top + height / 2);
          return;
        }
        nodeLabels(chart, nodes, nodes.map((_, i) => i).concat(nodes.length), [0, nodes.length || 1]);
        chart.clip(() => {
          chart.c.imageSmoothingEnabled = false;
          const x0 = chart.px(0), x1 = chart.px(l.until_s);
          chart.c.drawImage(heatImage(l[name], most).image, x0, top, x1 - x0, height);
        });
      },
      hover(x, y) {
        const l = look(), { nodes, bins } = heatOf(l), chart = charts[name], [, top, , height] = chart.inner, at = chart.at(x);
        const node = Math.floor((y - top) / height * nodes.length), bin = Math.floor(at / l.until_s * bins);
        if (bin < 0 || bin >= bins || !nodes[node]) return "";
        const cell = heatImage(l[name], most).cells[node * bins + bin];
        return nodes[node] + "\n" + (cell === 255 ? "down" : percent(cell / 250 * l[name].top) + " " + what) + "\n" + now(chart, at);
      },
    });
  }

  const ganttData = new Map();
  function ganttOf(l) {
    if (!ganttData.has(l)) {
      const g = l.gantt, edges = [0];
      for (const rows of g.rows) edges.push(edges.at(-1) + rows);
      const data = { job: new Int32Array(bytes(g.job).buffer), lane: floats(g.lane), lanes: floats(g.lanes), start: floats(g.start),
        end: floats(g.end), overhead: bytes(g.overhead), edges, count: g.count };
      // By colour, so that the colour is set a few times only.
      const order = Uint32Array.from({ length: g.count }, (_, i) => i);
      const colour = (i) => (data.overhead[i] ? 0 : 1 + data.job[i] % 6);
      data.order = order.sort((a, b) => colour(a) - colour(b) || a - b);
      data.colour = Uint8Array.from(data.order, colour);
      ganttData.set(l, data);
    }
    return ganttData.get(l);
  }
  const rows = new Range(0, 1);
  const isDown = (l, node, at) => l.gantt.down.some(([n, from, to]) => n === node && from <= at && at < to);
  function hatch(c, colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const t = tile.getContext("2d");
    t.strokeStyle = colour; t.lineWidth = 1.4;
    for (const d of [-6, 0, 6]) { t.beginPath(); t.moveTo(d - 1, 7); t.lineTo(d + 7, -1); t.stroke(); }
    return c.createPattern(tile, "repeat");
  }
  function outages(chart, l, edges) {
    const [, top, , height] = chart.inner, [y0, y1] = rows.at, ky = height / (y1 - y0), [x0, x1] = chart.x.at;
    chart.c.fillStyle = hatch(chart.c, chart.t.soft);
    for (const [node, from, to] of l.gantt.down) {
      if (to < x0 || from > x1) continue;
      const x = chart.px(Math.max(from, x0)), y = top + (edges[node] - y0) * ky;
      chart.c.fillRect(x, y, Math.max(chart.px(Math.min(to, x1)) - x, 1), (edges[node + 1] - edges[node]) * ky);
    }
  }
  function ganttChart() {
    new Chart("gantt", {
      label: "Jobs on GPUs, over time", x: time, y: rows, left: SIDE, line: false,
      height: () => Math.min(Math.max((rows.full[1] || 1) * 5, 140), 640) + 38,
      paint(chart) {
        const g = ganttOf(look()), c = chart.c, [left, top, width, height] = chart.inner;
        const [x0, x1] = chart.x.at, [y0, y1] = rows.at, kx = width / (x1 - x0), ky = height / (y1 - y0);
        onTime(chart);
        nodeLabels(chart, look().gantt.nodes, g.edges, rows.at);
        chart.clip(() => {
          const scale = window.devicePixelRatio || 1, dot = 1 / scale, gap = ky > 6 ? dot : 0;
          const snap = (v) => Math.round(v * scale) * dot;
          const taken = new Uint8Array((Math.ceil(width) + 2) * (Math.ceil(height) + 2)), line = Math.ceil(width) + 2;
          let colour = -1;
          const jobColours = palette();
          outages(chart, look(), g.edges);
          for (let k = 0; k < g.count; k++) {
            const i = g.order[k];
            if (g.end[i] < x0 || g.start[i] > x1 || g.lane[i] > y1 || g.lane[i] + g.lanes[i] < y0) continue;
            const x = left + (g.start[i] - x0) * kx, w = (g.end[i] - g.start[i]) * kx;
            const y = top + (g.lane[i] - y0) * ky, h = g.lanes[i] * ky;
            if (!g.colour[k] && w < 0.5) continue; // a short overhead must not hide the jobs
            if (w < 1) { // thinner than a pixel: one of them is enough
              const cell = Math.max(0, Math.floor(y - top)) * line + Math.max(0, Math.floor(x - left));
              if (taken[cell]) continue;
              taken[cell] = 1;
            }
            if (g.colour[k] !== colour) { colour = g.colour[k]; c.fillStyle = colour ? jobColours[colour - 1] : chart.t.up; }
            // Whole pixels: sharper, and several times faster.
            const px = snap(x), py = snap(y);
            c.fillRect(px, py, Math.max(snap(x + w) - px - (w > 6 ? dot : 0), dot), Math.max(snap(y + h) - py - gap, dot));
          }
          c.strokeStyle = chart.t.line; c.lineWidth = 1;
          const apart = ky * rows.full[1] / g.edges.length > 4; // else nothing but lines would be seen
          for (const edge of apart ? g.edges.slice(1, -1) : []) {
            const y = Math.round(top + (edge - y0) * ky) + 0.5;
            if (y >= top && y <= top + height) { c.beginPath(); c.moveTo(left, y); c.lineTo(left + width, y); c.stroke(); }
          }
        });
      },
      hover(x, y) {
        const l = look(), g = ganttOf(l), chart = charts.gantt, [left, top, width, height] = chart.inner;
        const at = chart.at(x), lane = rows.at[0] + (y - top) / height * (rows.at[1] - rows.at[0]);
        const slack = (chart.x.at[1] - chart.x.at[0]) / width;
        let found = -1;
        for (let i = 0; i < g.count; i++) {
          if (g.lane[i] > lane || g.lane[i] + g.lanes[i] <= lane || g.start[i] - slack > at || g.end[i] + slack < at) continue;
          if (found < 0 || (g.start[i] <= at && g.end[i] >= at)) found = i;
        }
        const node = before(g.edges, lane), name = l.gantt.nodes[node] || "";
        if (found < 0) return name && name + ", GPU " + Math.floor(lane - g.edges[node]) + ": " + (isDown(l, node, at) ? "down" : "free") + "\n" + now(chart, at);
        const jobs = D.jobs[l.jobs], job = g.job[found], exact = Math.min(1, Math.max(slack, 0.1));
        return ["job " + jobs.id[job] + " (" + jobs.gpus[job] + (jobs.gpus[job] === 1 ? " GPU" : " GPUs") + (jobs.tenant[job] ? ", " + jobs.tenant[job] : "") + ")",
          g.overhead[found] ? "being started, stopped or moved" : "running",
          clock(g.start[found], exact) + " to " + clock(g.end[found], exact) + " (" + duration(g.end[found] - g.start[found]) + ")",
          name + ": " + tidy(g.lanes[found]) + " of the job's GPUs"].join("\n");
      },
    });
  }

  // --- comparisons ---------------------------------------------------------------------------
  function delayChart() {
    const reasons = Object.keys(D.reasons.light), sums = D.delays.map((parts) => parts.reduce((a, b) => a + b, 0));
    const used = reasons.filter((_, k) => D.delays.some((parts) => parts[k] > 0));
    const reasonKeys = () => keys("delay", used.map((reason) => [reason, D.reasons[theme().mode][reason]]));
    painters.push(reasonKeys);
    reasonKeys();
    new Chart("delay", {
      label: "Mean wait by reason for every policy", left: 170, right: 80, height: D.policies.length * 28 + 40,
      paint(chart) {
        const { c, t } = chart, [left, top, width, height] = chart.inner, most = Math.max(1e-9, ...sums);
        const row = height / D.policies.length;
        c.strokeStyle = t.grid; c.fillStyle = t.soft; c.textAlign = "center";
        for (const [value, label] of timeTicks([0, most], Math.max(3, Math.floor(width / 110)), brief)) {
          const x = Math.round(left + value / most * width) + 0.5;
          c.beginPath(); c.moveTo(x, top); c.lineTo(x, top + height); c.stroke();
          c.fillText(label, x, top + height + 16);
        }
        if (!used.length) { c.fillStyle = t.fg; c.fillText("nobody waited", left + width / 2, top + height / 2); }
        D.delays.forEach((parts, i) => {
          let x = left;
          parts.forEach((s, k) => { c.fillStyle = D.reasons[t.mode][reasons[k]]; c.fillRect(x, top + i * row + row * 0.16, s / most * width, row * 0.68); x += s / most * width; });
          c.fillStyle = t.fg; c.textAlign = "right";
          c.fillText(D.short[D.policies[i]], left - 8, top + (i + 0.5) * row);
          c.textAlign = "left";
          c.fillText(D.wait_texts[i], x + 6, top + (i + 0.5) * row);
        });
      },
      hover(x, y) {
        const [, top, , height] = charts.delay.inner, i = Math.floor((y - top) / height * D.policies.length);
        if (!D.delays[i]) return "";
        const lines = reasons.map((reason, k) => [D.delays[i][k], reason]).filter(([s]) => s > 0).map(([s, reason]) => duration(s).padStart(10) + "  " + reason);
        return [D.policies[i] + ": " + duration(sums[i]), ...lines].join("\n");
      },
    });
  }

  function ratioChart() {
    const measures = [...new Map(D.ratios.map((r) => [r.key, r])).values()];
    const policies = D.policies.filter((p) => D.ratios.some((r) => r.policy === p));
    const values = D.ratios.flatMap((r) => [r.ratio, r.low, r.high]).filter((v) => v > 0);
    const low = Math.log10(Math.min(0.9, ...values)) - 0.03, high = Math.log10(Math.max(1.1, ...values)) + 0.03;
    const x = new Range(low, high), unit = 13, row = policies.length * unit + 12;
    const y = (r) => measures.findIndex((m) => m.key === r.key) * row + 6 + (policies.indexOf(r.policy) + 0.5) * unit;
    function ticks([from, to]) {
      const wide = to - from > 0.9, steps = wide ? [1, 2, 5] : [1, 1.1, 1.2, 1.3, 1.5, 2, 3, 4, 5, 6, 7, 8, 9, 9.5];
      const found = [];
      for (let p = -6; p < 7; p++) for (const s of steps) found.push(s * 10 ** p);
      return found.map((v) => [Math.log10(v), tidy(v)]).filter(([v]) => v >= from && v <= to);
    }
    const host = $('[data-keys="ratios"]');
    const pointKeys = () => host.replaceChildren(...policies.map((p) => {
      const item = document.createElement("span"), mark = document.createElement("canvas"), c = mark.getContext("2d");
      mark.width = mark.height = 24; mark.style.width = "12px";
      c.scale(2, 2); c.fillStyle = colourOf(p); point(c, p, 6, 6, 4); c.fill();
      item.append(mark, D.short[p]);
      item.title = p;
      return item;
    }));
    painters.push(pointKeys);
    pointKeys();
    new Chart("ratios", {
      label: "Ratio of every measure to the baseline with its interval", x, left: 210, line: false, height: measures.length * row + 38,
      ys: [0, 1],
      paint(chart) {
        const { c, t } = chart, [left, top, width, height] = chart.inner;
        chart.xAxis(ticks(x.at));
        measures.forEach((m, i) => {
          c.fillStyle = t.fg; c.textAlign = "right";
          c.fillText(m.measure, left - 12, top + (i + 0.5) * row - 6);
          c.fillStyle = t.soft;
          c.fillText({ less: "\u2190 better", more: "better \u2192" }[m.better] || "", left - 12, top + (i + 0.5) * row + 8);
          c.strokeStyle = t.line; c.beginPath(); c.moveTo(0, top + (i + 1) * row + 0.5); c.lineTo(chart.w, top + (i + 1) * row + 0.5); c.stroke();
        });
        const arrow = (x, way, cy) => { c.beginPath(); c.moveTo(x, cy); c.lineTo(x + way * 8, cy - 4.5); c.lineTo(x + way * 8, cy + 4.5); c.closePath(); c.fill(); };
        chart.clip(() => {
          c.strokeStyle = t.fg; c.lineWidth = 1.5;
          c.beginPath(); c.moveTo(chart.px(0), top); c.lineTo(chart.px(0), top + height); c.stroke();
          for (const r of D.ratios) {
            const cy = top + y(r), cx = chart.px(Math.log10(r.ratio));
            c.strokeStyle = c.fillStyle = colourOf(r.policy); c.lineWidth = 2;
            const low = r.low === null ? r.ratio : r.low, high = r.high === null ? r.ratio : r.high;
            const x0 = low > 0 ? chart.px(Math.log10(low)) : -1, x1 = high > 0 ? chart.px(Math.log10(high)) : -1;
            c.beginPath(); c.moveTo(Math.max(x0, left), cy); c.lineTo(Math.min(x1, left + width), cy); c.stroke();
            if (x0 < left) arrow(left, 1, cy);
            if (x1 > left + width) arrow(left + width, -1, cy);
            if (!(r.ratio > 0)) continue;
            point(c, r.policy, cx, cy, 3.6);
            if (!r.clear) c.fillStyle = t.bg;
            c.fill(); c.stroke();
          }
        });
      },
      hover(px, py) {
        const [, top] = charts.ratios.inner;
        const near = D.ratios.reduce((best, r) => (!best || Math.abs(y(r) - py + top) < Math.abs(y(best) - py + top) ? r : best), null);
        if (!near) return "";
        const interval = near.low === null || near.high === null ? "" : "\nfrom " + tidy(near.low) + " to " + tidy(near.high);
        return near.measure + ": " + near.policy + "\n" + tidy(near.ratio) + " of " + D.baseline + interval + "\n" + (near.verdict || "");
      },
    });
  }

  // --- all of it -----------------------------------------------------------------------------
  function tenantKeys() {
    const { names } = look().tenants, colours = tenantColours();
    keys("tenants", names.map((name, k) => [name, colours[k]]).reverse());
  }
  function choose(number) {
    shown = number;
    const l = look(), g = ganttOf(l);
    all("[data-policy]").filter((e) => e.tagName === "B").forEach((e) => { e.textContent = l.policy; });
    tenantKeys();
    rows.full = [0, g.edges.at(-1) || 1];
    rows.reset();
    $("#bars").textContent = "(" + l.gantt.count.toLocaleString("en") + " bars" +
      (l.gantt.all > l.gantt.count ? ", the largest of " + l.gantt.all.toLocaleString("en") : "") + ")";
    time.reset();
  }
  function start() {
    if (D.ratios.length) ratioChart(); else $("#s-ratios").hidden = true;
    delayChart();
    if (!D.looks.length) { $("#s-cdf").hidden = $("#s-time").hidden = true; return; }
    cdfChart("jct_s", "Distribution of completion times");
    cdfChart("wait_s", "Distribution of waiting times");
    const select = $("#policy");
    D.looks.forEach((l, i) => select.append(new Option(l.policy, String(i))));
    select.addEventListener("change", () => choose(Number(select.value)));
    $("#queue-of").addEventListener("change", () => charts.queue.later());
    queueChart(); utilisationChart(); tenantsChart();
    heatChart("heat", "Share of each node's GPUs in use, over time", "in use");
    if (D.looks.some((l) => l.fragments)) heatChart("fragments", "Share of each node's GPUs that are fragments, over time", "fragments");
    else $("#f-fragments").hidden = true;
    ganttChart();
    rows.users.push(() => charts.gantt.later());
    time.users.push(() => { const step = pixel(charts.queue); $("#range").textContent = time.whole ? "" : clock(time.at[0], step) + " to " + clock(time.at[1], step); });
    keys("utilisation", [["useful", D.uses.useful], ["overhead", D.uses.overhead], ["line: up", "var(--up)"]]);
    const otherKeys = () => {
      const shades = (most) => [0, 0.25, 0.5, 0.75, 1].map((s) => [Math.round(s * most * 1000) / 10 + " %", `rgb(${ramp(s)})`]).concat([["down", `rgb(${REDS[theme().mode]})`]]);
      keys("heat", shades(1));
      keys("fragments", shades(brightest("fragments")));
      keys("gantt", [["being started, stopped or moved", "var(--up)"], ["other colours: jobs", palette()[0]], ["hatched: the node is down", "repeating-linear-gradient(135deg, var(--soft) 0 1.5px, transparent 1.5px 4px)"]]);
      tenantKeys();
      legends();
      heatImages.clear();
    };
    painters.push(otherKeys);
    otherKeys();
    const acts = { in: () => time.zoom(0.5), out: () => time.zoom(2), left: () => time.move(-0.3), right: () => time.move(0.3), reset: () => { time.reset(); rows.reset(); } };
    all("[data-zoom]").forEach((button) => button.addEventListener("click", acts[button.dataset.zoom]));
    choose(0);
  }
  function redraw() {
    painters.forEach((paint) => paint());
    Object.values(charts).forEach((chart) => chart.draw());
  }
  start();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.classList.add("light"); redraw(); });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("light"); redraw(); });
  window.rotaReport = { charts, time, rows, choose };
})();
