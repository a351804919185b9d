// @ts-check
/** Numbers, times and states in words that people use. */

const UNITS = /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]);

/**
 * A length of time with at most two units: `2 h 5 min`.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 0.001) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  let rest = Math.round(seconds);
  if (seconds < 9.95 && rest !== seconds) return `${trim(seconds.toFixed(1))} s`;
  /** @type {string[]} */
  const parts = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(rest / size);
    if (!count && !parts.length) continue;
    rest -= count * size;
    if (count) parts.push(`${count} ${unit}`);
    if (parts.length === 2 || (parts.length === 1 && size <= 60 && unit === "min" && count >= 10)) break;
    if (parts.length === 1 && !count) break;
  }
  return parts.join(" ") || "0 s";
}

const COMPACT = /** @type {[number, string, number, string][]} */ ([[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]]);

/**
 * A length of time as commands and reports write it: `3d 04h`, `2h 04m`, `4m 05s`, `37.5 s`.
 * @param {number | null | undefined} seconds
 * @returns {string}
 */
export function lasting(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `-${lasting(-seconds)}`;
  for (const [size, name, small, smallName] of COMPACT) {
    const whole = Math.round(seconds / small) * small;
    if (whole >= size) return `${number(Math.floor(whole / size))}${name} ${two(Math.round((whole % size) / small))}${smallName}`;
  }
  return `${Number(seconds.toPrecision(3))} s`;
}

/**
 * A round time, as on an axis: `10m`, `2h`.
 * @param {number} seconds
 */
export function round(seconds) {
  return seconds ? lasting(seconds).replace(/ 00[smh]$/, "") : "0";
}

/**
 * A moment of a run, counted from its beginning: `1d 03:42`, with seconds where they matter.
 * @param {number} seconds
 * @param {number} [exact] how far apart moments are that shall differ
 */
export function sinceStart(seconds, exact = 60) {
  const unit = exact >= 60 ? 60 : 1;
  const at = Math.max(0, Math.round(seconds / unit) * unit);
  const days = Math.floor(at / 86400);
  const text = `${two(Math.floor((at % 86400) / 3600))}:${two(Math.floor((at % 3600) / 60))}`;
  return `${days ? `${days}d ` : ""}${text}${unit < 60 ? `:${two(at % 60)}` : ""}`;
}

/** @param {string} text */
function trim(text) {
  return text.replace(/\.0$/, "");
}

/**
 * A count or an amount of GPUs: `1,024`, `0.5`.
 * @param {number | null | undefined} value
 * @param {number} [digits] behind the point, at most
 */
export function number(value, digits = 2) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

/**
 * The GPUs of a job: `2`; of an elastic one what it has and takes: `4 of 1-8`, `1-8`.
 * @param {any} job
 * @returns {string}
 */
export function sized(job) {
  if (!job.elastic) return number(job.gpus);
  const takes = `${job.elastic.min}-${job.elastic.max}`;
  const has = Object.values(job.nodes || {}).reduce((all, one) => all + one, 0);
  return has ? `${number(has)} of ${takes}` : takes;
}

/**
 * @param {number} count
 * @param {string} word
 * @param {string} [several]
 */
export function plural(count, word, several = `${word}s`) {
  return `${number(count)} ${count === 1 ? word : several}`;
}

/**
 * How many GPUs a job has, and how many it asked for if these are others.
 * @param {number} asked
 * @param {number} [held] whole GPUs
 */
export function heldOf(asked, held = asked) {
  return held === asked || asked % 1 ? plural(asked, "GPU") : `${plural(held, "GPU")}, asked for ${number(asked)}`;
}

/** @param {number | null | undefined} share */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return `${Math.round(share * 100)} %`;
}

/** @param {number} value */
function two(value) {
  return String(value).padStart(2, "0");
}

/**
 * The time of day, with the day if it is not today.
 * @param {number | null | undefined} unix seconds
 * @param {number} [now]
 */
export function clock(unix, now = Date.now() / 1000) {
  if (unix === null || unix === undefined || !Number.isFinite(unix)) return "–";
  const at = new Date(unix * 1000);
  const today = new Date(now * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (at.toDateString() === today.toDateString()) return time;
  return `${at.getFullYear() === today.getFullYear() ? "" : `${at.getFullYear()}-`}${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`;
}

/** @param {number | null | undefined} unix seconds */
export function moment(unix) {
  if (unix === null || unix === undefined || !Number.isFinite(unix)) return "–";
  const at = new Date(unix * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** @param {number} unix seconds */
export function secondOf(unix) {
  return moment(unix).slice(11);
}

/**
 * @param {number | null | undefined} unix seconds
 * @param {number} now
 */
export function ago(unix, now) {
  if (unix === null || unix === undefined) return "–";
  const seconds = now - unix;
  return seconds < 5 ? "just now" : `${duration(seconds)} ago`;
}

/** @param {number} bytes */
export function bytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(value, value < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

/**
 * States of jobs: a word, a sign that can be told without colour, and a kind for the style sheet.
 * @type {Record<string, {word: string, sign: string, kind: string}>}
 */
export const JOB_STATES = {
  HELD: { word: "Held", sign: "‖", kind: "held" },
  PENDING: { word: "Waiting", sign: "○", kind: "waiting" },
  STARTING: { word: "Starting", sign: "◔", kind: "running" },
  RUNNING: { word: "Running", sign: "●", kind: "running" },
  STOPPING: { word: "Stopping", sign: "◕", kind: "waiting" },
  SUCCEEDED: { word: "Done", sign: "✓", kind: "good" },
  FAILED: { word: "Failed", sign: "✕", kind: "bad" },
  REJECTED: { word: "Rejected", sign: "⊘", kind: "bad" },
  CANCELLED: { word: "Cancelled", sign: "–", kind: "gone" },
  TIMEOUT: { word: "Out of time", sign: "◷", kind: "bad" },
};

/** @type {Record<string, {word: string, sign: string, kind: string}>} */
export const NODE_STATES = {
  up: { word: "Up", sign: "●", kind: "good" },
  silent: { word: "Not heard of", sign: "?", kind: "bad" },
  down: { word: "Down", sign: "✕", kind: "bad" },
  draining: { word: "Draining", sign: "◔", kind: "waiting" },
  drained: { word: "Drained", sign: "‖", kind: "held" },
};

/** States in which a job is over. */
export const OVER = new Set(["SUCCEEDED", "FAILED", "REJECTED", "CANCELLED", "TIMEOUT"]);

/**
 * Why a job waits, for somebody who is here for the first time.
 * @type {Record<string, string>}
 */
export const REASONS = {
  order: "other jobs are first",
  capacity: "not enough GPUs are free",
  fragmentation: "enough GPUs are free, but not side by side",
  quota: "a limit of its queue or user is reached",
  gang: "only a part of it could start, and it starts as a whole",
  constraint: "no free GPU is of the kind that it asks for",
  admission: "it was not let into the queue yet",
  dependency: "it waits for another job to end",
  backoff: "it failed, and is tried again after a while",
  maintenance: "it would not end before the maintenance of nodes that it needs",
  reserved: "it would not end before nodes that it needs are reserved for others",
  memory: "there are GPUs for it, but too little of their memory is free",
  array: "as many of its array as may are in the queue or run",
  overhead: "it is being started, stopped or moved",
  down: "its nodes failed",
  unknown: "the log does not tell",
};
