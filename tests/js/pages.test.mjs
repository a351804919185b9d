// The scripts of the pages, as far as they need no browser. Run by tests/unit/web/test_scripts.py.
import assert from "node:assert/strict";
import { test } from "node:test";

const web = new URL("../../src/rota/web/", import.meta.url);
const load = (name) => import(new URL(name, web));
const { Terminal } = await load("ansi.js");
const { Board, unpackRuns } = await load("board.js");
const { niceTicks, valueAt } = await load("chart.js");
const { ageShare, hueOf, Palette, ramp } = await load("colours.js");
const { lastBefore, unpack } = await load("columns.js");
const { asCommand, quoted } = await load("command.js");
const { bytes, clock, duration, heldOf, lasting, number, plural, round, sinceStart, sized } = await load("format.js");
const { stack, timeStep } = await load("lanes.js");
const { ClusterMap } = await load("map.js");
const { chainWords } = await load("page-audit.js");
const { Playback } = await load("play.js");
const { asTree } = await load("page-queues.js");
const { licenceRows, troubles } = await load("page-overview.js");
const { judge } = await load("page-policy.js");
const { asJob, fieldOf } = await load("page-submit.js");
const { logTicks, spanTicks } = await load("report.js");
const { blockWidth } = await load("queue-line.js");
const { compareKeys } = await load("sheet.js");
const { Span } = await load("span.js");
const { sentence, waits } = await load("story.js");
const { useOverTime } = await load("use.js");

const written = (...texts) => {
  const terminal = new Terminal();
  for (const text of texts) terminal.write(new TextEncoder().encode(text));
  return terminal.lines;
};
const plain = (lines) => lines.map((line) => line.map((piece) => piece.text).join(""));

test("lengths of time have at most two units", () => {
  const cases = { 0: "0 s", 0.0004: "0 s", 0.25: "250 ms", 3: "3 s", 9.94: "9.9 s", 59.6: "1 min", 61: "1 min 1 s", 600: "10 min", 3600: "1 h", 7500: "2 h 5 min", 90000: "1 d 1 h" };
  for (const [seconds, text] of Object.entries(cases)) assert.equal(duration(Number(seconds)), text);
  assert.equal(duration(null), "–");
  assert.equal(duration(Infinity), "–");
  assert.equal(duration(-61), "-1 min 1 s");
});

test("numbers are as people write them", () => {
  assert.equal(number(12345.678), "12,345.68");
  assert.equal(number(undefined), "–");
  assert.equal(plural(1, "job"), "1 job");
  assert.equal(plural(2, "job"), "2 jobs");
  assert.equal(sized({ gpus: 2, elastic: null, nodes: {} }), "2");
  assert.equal(sized({ gpus: 1, elastic: { min: 1, max: 8 }, nodes: {} }), "1-8");
  assert.equal(sized({ gpus: 1, elastic: { min: 1, max: 8 }, nodes: { a: 3, b: 1 } }), "4 of 1-8");
  assert.equal(bytes(1536), "1.5 KiB");
  const now = new Date(2026, 4, 6, 12).getTime() / 1000;
  assert.equal(clock(now, now), "12:00");
  assert.equal(clock(now - 86400, now), "05-05 12:00");
});

test("a terminal keeps styles over pieces, and drops what it does not know", () => {
  const lines = written("a\x1b[1;31mb", "c\x1b[0md\x1b[2Ke\x1b]0;title\x07f\n\x1b[38;5;10mg\x1b[38;2;255;10;10mh");
  assert.deepEqual(lines[0], [{ text: "a", style: "" }, { text: "b", style: "bold f1" }, { text: "c", style: "bold f1" }, { text: "d", style: "" }, { text: "e", style: "" }, { text: "f", style: "" }]);
  assert.deepEqual(lines[1], [{ text: "g", style: "f10" }, { text: "h", style: "f9" }]);
});

test("a sequence may come in two pieces, and so may a letter", () => {
  assert.deepEqual(plain(written("a\x1b[3", "2mb")), ["ab"]);
  const terminal = new Terminal();
  const data = new TextEncoder().encode("ü");
  terminal.write(data.slice(0, 1));
  terminal.write(data.slice(1));
  assert.deepEqual(plain(terminal.lines), ["ü"]);
});

test("a carriage return writes the line anew", () => {
  assert.deepEqual(plain(written("10 %\r50 %", "\r100 %\ndone\r\nmore")), ["100 %", "done", "more"]);
});

test("a terminal keeps the last lines only", () => {
  const terminal = new Terminal();
  terminal.write(new TextEncoder().encode("x\n".repeat(6000)));
  assert.equal(terminal.lines.length, 5000);
  assert.equal(terminal.dropped, 1001);
});

test("runs of owners are as the daemon packs them", () => {
  const found = [];
  unpackRuns("AAECAgKoAQMBVQ==", (...run) => found.push(run)); // tests/unit/api/test_board.py
  assert.deepEqual(found, [[0, 1, 1], [3, 2, 85], [8, 1, 43]]);
});

test("a board knows all who share a GPU", () => {
  const board = new Board();
  const full = { now: 5, events: 2, counts: {}, nodes: [["a", "up", 9, ""]], runs: "AAECAgKoAQMBVQ==", jobs: [], shared: { 3: [85, 86, 90] } };
  board.take("full", full);
  assert.deepEqual([...board.shared], [[3, [85, 86, 90]]]);
  const delta = { now: 6, events: 3, counts: {}, nodes: [], runs: "", jobs: [], gone: [], shared: { 3: [], 4: [85, 91] } };
  assert.deepEqual(board.take("delta", delta), [3, 4]);
  assert.deepEqual([...board.shared], [[4, [85, 91]]]);
  board.take("full", { ...full, shared: {} });
  assert.equal(board.shared.size, 0);
});

test("a cell of the map has a part for everybody who shares the GPU", () => {
  const sharers = [[], ["red"], ["red", "blue"], ["red", "blue", "green", "red", "blue"]];
  for (const fills of sharers) {
    /** @type {[string, number, number][]} */
    const drawn = [];
    const context = { fillStyle: "", fillRect: (x, y, wide) => drawn.push([context.fillStyle, x, wide]), fillText() {} };
    const map = Object.assign(Object.create(ClusterMap.prototype), {
      context, nodes: [{ name: "n", gpus: 1 }], firsts: [0], nodeOf: [0], owners: [1], size: 12, gap: 2, spot: -1, columns: 1, across: 1, title: 0, wide: 15, high: 15,
      options: { paint: () => ({ fill: "grey" }), parts: () => fills.map((fill) => ({ fill })) },
    });
    map.cell(0, { free: "free" });
    const [ground, ...parts] = drawn;
    assert.equal(ground[0], fills.length ? "free" : "grey");
    assert.deepEqual(parts.map((part) => part[0]), fills);
    parts.forEach((part, i) => assert.ok(part[2] >= 1 && part[1] + part[2] <= (parts[i + 1]?.[1] ?? 10)));
  }
});

test("a board is built up by messages", () => {
  const board = new Board();
  const full = { now: 5, events: 2, counts: { running: 1 }, nodes: [["a", "up", 2, ""], ["b", "up", 7, ""]], runs: "AAECAgKoAQMBVQ==", jobs: [[1, 1, 4, "x", "ann", "q", null]] };
  assert.equal(board.take("full", full), null);
  assert.deepEqual([...board.owners], [1, 0, 0, 85, 85, 0, 0, 0, 43]);
  assert.deepEqual(board.use, { used: 4, total: 9 });
  const delta = { now: 6, events: 3, counts: {}, nodes: [[1, ["b", "down", 7, ""]]], runs: "AAEA", jobs: [], gone: [1] };
  assert.deepEqual(board.take("delta", delta), [0, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal(board.owners[0], 0);
  assert.equal(board.jobs.size, 0);
  assert.deepEqual(board.use, { used: 0, total: 2 });
});

test("bars at the same time lie below each other", () => {
  const bar = (rows, from, to) => ({ lane: 0, rows, from, to, key: "", fill: "" });
  const found = stack([{ name: "n", rows: 4 }], [bar(2, 0, 10), bar(1, 1, 5), bar(1, 2, null), bar(2, 10, 12), bar(1, 5, 9)]);
  assert.deepEqual(found.map((each) => [each.from, each.row]), [[0, 0], [1, 2], [2, 3], [5, 2], [10, 0]]);
});

test("axes have round marks", () => {
  assert.equal(timeStep(3600, 8), 600);
  assert.equal(timeStep(30 * 604800, 10), 3 * 604800);
  assert.deepEqual(niceTicks(0, 48, 4).ticks, [0, 20, 40, 60]);
  assert.deepEqual(niceTicks(0.1, 0.35, 3).ticks, [0.1, 0.2, 0.3, 0.4]);
  assert.equal(valueAt([[1, 5], [3, 7]], 2), 5);
  assert.equal(valueAt([[1, 5], [3, 7]], 0), null);
});

test("the use of queues over time is a sum of bars", () => {
  const bars = [
    { queue: "a", nodes: { n: 2 }, began_at: 10, ended_at: 20 },
    { queue: "a", nodes: { n: 1, m: 1 }, began_at: 15 },
    { queue: "b", nodes: { n: 4 }, began_at: 0, ended_at: 12 },
  ];
  globalThis.document = { documentElement: { dataset: { theme: "light" } } };
  const { series, total } = useOverTime({ now: 30, bars }, 5, new Palette());
  delete globalThis.document;
  assert.deepEqual(series.map((one) => [one.name, one.points]), [["a", [[10, 2], [15, 4], [20, 2]]], ["b", [[5, 4], [12, 0]]]]);
  assert.equal(total, 6);
});

test("the same name always has the same colour, and the first ten differ", () => {
  const palette = new Palette();
  const names = [..."abcdefghij"];
  assert.equal(new Set(names.map((name) => palette.colour(name, false))).size, 10);
  assert.equal(palette.colour("c", true), palette.colour("c", true));
  assert.notEqual(hueOf(1, false), hueOf(2, false));
  assert.notEqual(ramp(0, true), ramp(1, true));
  assert.equal(ageShare(10), 0);
  assert.ok(Math.abs(ageShare(7 * 86400) - 1) < 1e-9);
});

test("a form becomes a job, and a job a command", () => {
  const job = asJob({ run: "python train.py --lr 0.1", name: "it's", "resources.gpus": "2-8", nodes: "2", queue: " a ", envs: "A=1\nB=x=y\n", depends_on: "3, prep", "resources.mem": "64GB", estimate: "2h", group: "" }, true);
  assert.deepEqual(job, { run: "python train.py --lr 0.1", name: "it's", resources: { gpus: { min: 2, max: 8 }, mem: "64GB" }, nodes: 2, queue: "a", envs: { A: "1", B: "x=y" }, depends_on: ["3", "prep"], estimate: "2h", hold: true });
  assert.equal(asCommand(job), "rota submit --gpus 2-8 --name 'it'\\''s' --queue a --hold --set 'resources.mem=\"64GB\"' --set nodes=2 --set 'envs.A=\"1\"' --set envs.B=x=y --set 'depends_on=[\"3\", prep]' --set 'estimate=\"2h\"' -- sh -c 'python train.py --lr 0.1'");
  assert.equal(asJob({ "resources.gpus": "many" }, false).resources.gpus, "many", "the daemon says what is wrong");
  assert.equal(quoted("a b"), "'a b'");
});

test("an error is shown at its field", () => {
  const keys = ["run", "nodes", "resources.gpus", "resources.gpu_type", "queue"];
  assert.equal(fieldOf("job: resources.gpus: 99 is too many", keys), "resources.gpus");
  assert.equal(fieldOf("Expected `int | float`, got `str` - at `$.resources.gpus`", keys), "resources.gpus");
  assert.equal(fieldOf("run: is empty", keys), "run");
  assert.equal(fieldOf("something else", keys), "");
});

test("queues are a tree", () => {
  const names = asTree([{ name: "b", parent: "a" }, { name: "a", parent: "" }, { name: "c", parent: "b" }, { name: "lost", parent: "none" }]);
  assert.deepEqual(names.map(({ queue, depth }) => [queue.name, depth]), [["a", 0], ["b", 1], ["c", 2], ["lost", 0]]);
});

test("a licence has a row", () => {
  const rows = licenceRows({ matlab: { total: 2, used: 1, spent: 0, asked: 0, waiting: [] }, tokens: { total: 9, used: 0, spent: 4, asked: 0, waiting: [] } });
  assert.deepEqual(rows, [["matlab", "1", "2", "0", "nobody"], ["tokens", "0", "9 (4 used up)", "0", "nobody"]]);
});

test("what needs attention is said in sentences", () => {
  assert.deepEqual(troubles({ journal_lag_s: 0, decision_s: { p99: 0.1 } }, [{ name: "n1", state: "up" }]), []);
  const told = troubles({ journal_lag_s: 9, decision_s: { p99: 2 } }, [{ name: "n1", state: "down", why: "no heartbeat" }, { name: "n2", state: "silent" }]);
  assert.deepEqual(told, ["1 node down: n1 (no heartbeat)", "1 node not heard of: n2", "The store is slow: the oldest input waits since 9 s.", "Decisions are slow: one in a hundred takes 2 s or longer."]);
  assert.match(judge(100, 80), /20 % earlier/);
  assert.match(judge(100, 101), /about the same/);
});

test("lengths of time in reports are those of the command line", () => {
  const cases = { 0: "0 s", 37.5: "37.5 s", 59.7: "1m 00s", 245: "4m 05s", 7440: "2h 04m", 273600: "3d 04h" };
  for (const [seconds, text] of Object.entries(cases)) assert.equal(lasting(Number(seconds)), text);
  assert.equal(lasting(NaN), "–");
  assert.deepEqual([round(600), round(0), round(7440)], ["10m", "0", "2h 04m"]);
  assert.deepEqual([sinceStart(90), sinceStart(100_000, 1), sinceStart(59.6, 1)], ["00:02", "1d 03:46:40", "00:01:00"]);
});

test("packed columns come back", async () => {
  const { deflateSync } = await import("node:zlib");
  const bytesOf = (array) => Buffer.from(array.buffer);
  const zip = deflateSync(Buffer.concat([bytesOf(Uint8Array.of(1, 2, 3)), bytesOf(Int32Array.of(5, 0, -2)), bytesOf(Float32Array.of(0.5, NaN, 8))])).toString("base64");
  const found = await unpack({ n: 3, of: [["a", "u1"], ["at", "d4", 0.5], ["b", "f4"]], zip });
  assert.deepEqual([...found.a], [1, 2, 3]);
  assert.deepEqual([...found.at], [2.5, 2.5, 1.5]);
  assert.deepEqual([...found.b], [0.5, NaN, 8]);
  assert.deepEqual([lastBefore([1, 2, 2, 5], 2), lastBefore([1, 2], 0), lastBefore([1, 2], 9)], [2, -1, 1]);
});

test("a part in view stays inside, and all who share it are told", () => {
  const span = new Span(0, 100);
  let told = 0;
  span.users.add(() => (told += 1));
  span.set(-10, 40);
  assert.deepEqual([span.from, span.to, told], [0, 50, 1]);
  span.zoom(0.5, 1);
  assert.deepEqual([span.from, span.to], [25, 50]);
  span.move(10);
  assert.deepEqual([span.from, span.to], [75, 100]);
  span.set(75, 100);
  assert.equal(told, 3);
  span.set(60, 60);
  assert.ok(span.to - span.from > 0 && span.to - span.from < 0.01);
  span.reset();
  assert.ok(span.whole);
});

test("rows without a number come last, whichever way", () => {
  const sorted = (rising, ...keys) => keys.sort((a, b) => compareKeys(a, b, rising));
  assert.deepEqual(sorted(true, 3, NaN, 1, 2), [1, 2, 3, NaN]);
  assert.deepEqual(sorted(false, 3, NaN, 1, 2), [3, 2, 1, NaN]);
  assert.deepEqual(sorted(true, "n10", "n2", "a"), ["a", "n2", "n10"]);
});

test("axes of time have round marks", () => {
  assert.deepEqual(logTicks(0, 4).map(([, text]) => text), ["1 s", "10 s", "1m", "10m", "1h"].filter((text) => text !== "1h" || 4 >= Math.log10(3600)));
  assert.deepEqual(spanTicks(0, 7200, 4), [[0, "00:00"], [1800, "00:30"], [3600, "01:00"], [5400, "01:30"], [7200, "02:00"]]);
  assert.deepEqual(spanTicks(0, 172800, 3).map(([, text]) => text), ["0", "1d", "2d"]);
});

test("why a job waited, in a sentence", () => {
  const fates = { order: [60, 0], capacity: [3600, 0], jct: [9, 9] };
  assert.deepEqual(waits(fates, 0), [["capacity", 3600], ["order", 60]]);
  assert.equal(sentence(waits(fates, 0), 2), "waited 1h 01m: not enough GPUs are free (1h 00m), other jobs are first (1m 00s); stopped 2 times for others");
  assert.equal(sentence(waits(fates, 1), 0), "did not wait");
});

const playback = () => {
  const bars = { job: [0, 1, 0, 0], node: [0, 1, 0, 1], lane: [0, 0.5, 0, 0], lanes: [2, 0.5, 2, 1], gpus: [2, 0.5, 2, 1], start: [10, 20, 30, 40], length: [20, 100, 10, 5], overhead: [0, 0, 1, 0] };
  const waits = { job: [0, 1, 2], from: [0, 5, 7], length: [10, 15, 1000], reason: [1, 2, 1] };
  const events = { time: [10, 20, 40], what: [0, 0, 2], job: [0, 1, 0], other: [-1, -1, -1] };
  return new Playback({ nodes: [{ name: "a", gpus: 2 }, { name: "b", gpus: 1 }] }, bars, waits, events, 3, [0, 5, 7], [45, 120, NaN]);
};
const state = (play) => [[...play.owners], [...play.taking], play.busy, play.active, play.line(), play.over()];

test("a moment is the same, whichever way one comes to it", () => {
  const forward = playback();
  for (let at = 0; at <= 200; at += 2.5) {
    forward.seek(at);
    const direct = playback();
    direct.seek(at);
    assert.deepEqual(state(forward), state(direct), String(at));
  }
  for (const at of [100, 25, 31, 0, 44]) {
    forward.seek(at);
    const direct = playback();
    direct.seek(at);
    assert.deepEqual(state(forward), state(direct), String(at));
  }
});

test("what the check of the audit log found", () => {
  assert.equal(chainWords(1, 0, 0), "There is no line yet.");
  assert.equal(chainWords(1, 1200, 0), "All 1,200 lines: each follows from the one before it.");
  assert.equal(chainWords(7, 9, 0), "Lines 7 to 9: each follows from the one before it.");
  assert.match(chainWords(1, 9, 4), /^Line 4 does not follow from the one before it: .*rota store check/);
});

test("all that share a GPU are known", () => {
  const bars = { job: [0, 1, 2], node: [0, 0, 0], lane: [0.5, 0, 1], lanes: [0.5, 0.5, 1], gpus: [1, 0.25, 1], start: [0, 10, 10], length: [30, 10, 10], overhead: [0, 1, 0] };
  const none = { job: [], from: [], length: [], reason: [] };
  const play = new Playback({ nodes: [{ name: "a", gpus: 2 }] }, bars, none, { time: [], what: [], job: [], other: [] }, 3, [0, 0, 0], [30, 20, 20]);
  play.seek(5);
  assert.deepEqual([[...play.owners], [...play.shared], play.busy], [[1, 0], [[0, [0]]], 1]);
  play.seek(15);
  assert.deepEqual([[...play.owners], [...play.shared], play.busy, play.active], [[2, 3], [[0, [1, 0]]], 2, 3], "a GPU is not used twice");
  assert.deepEqual([...play.taking], [1, 0]);
  play.seek(25);
  assert.deepEqual([[...play.owners], [...play.shared], play.busy], [[1, 0], [[0, [0]]], 1]);
  play.seek(31);
  assert.deepEqual([[...play.owners], play.shared.size, play.busy, play.active], [[0, 0], 0, 0, 0]);
  play.seek(15);
  assert.deepEqual([...play.shared], [[0, [1, 0]]], "and back");
});

test("who has what, who waits, what was decided", () => {
  const play = playback();
  play.seek(9);
  assert.deepEqual(state(play), [[0, 0, 0], [0, 0, 0], 0, 0, [0, 1, 2], 0]);
  play.seek(25);
  assert.deepEqual(state(play), [[1, 1, 2], [0, 0, 0], 2.5, 2, [2], 0]);
  play.seek(30);
  assert.deepEqual([...play.taking], [1, 1, 0], "it is being moved");
  assert.deepEqual(play.latest(5), [1, 0]);
  assert.deepEqual([play.nextEvent(20), play.nextEvent(40)], [40, null]);
  assert.deepEqual([play.nodesAt(0, 40), play.nodesAt(0, 39)], [[1], []]);
  assert.equal(play.changes(), null);
  play.seek(46);
  assert.deepEqual([...play.changes()].sort(), [0, 1, 2]);
  assert.equal(play.over(), 1);
  assert.ok(blockWidth(8) > blockWidth(1) && blockWidth(10_000) === blockWidth(256));
});

test("an elastic job is named with the GPUs that it has, not with those that it asked for", () => {
  const bars = { job: [0, 0, 1], node: [0, 0, 1], lane: [0, 0, 0], lanes: [1, 2, 1], gpus: [1, 2, 1], start: [0, 10, 10], length: [10, 20, 20], overhead: [0, 0, 0] };
  const none = { job: [], from: [], length: [], reason: [] };
  const play = new Playback({ nodes: [{ name: "a", gpus: 2 }, { name: "b", gpus: 1 }] }, bars, none, { time: [], what: [], job: [], other: [] }, 2, [0, 0], [30, 30]);
  play.seek(5);
  assert.equal(heldOf(1, play.held(0)), "1 GPU");
  play.seek(15);
  assert.deepEqual([play.held(0), play.held(1)], [2, 1]);
  assert.equal(heldOf(1, play.held(0)), "2 GPUs, asked for 1");
  assert.equal(heldOf(0.5, 1), "0.5 GPUs");
  assert.equal(heldOf(4), "4 GPUs");
});
