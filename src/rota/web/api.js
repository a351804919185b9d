// @ts-check
/** Questions to the daemon. The session is a cookie that no script can read. */

export const PREFIX = "/api/v1";

/** What the daemon answered when it did not do what was asked. */
export class ApiError extends Error {
  /**
   * @param {number} status 0: nobody answered
   * @param {string} message
   * @param {string} [remedy]
   * @param {string} [kind]
   */
  constructor(status, message, remedy = "", kind = "") {
    super(message);
    this.status = status;
    this.remedy = remedy;
    this.kind = kind;
  }

  /** For people. */
  get text() {
    return this.remedy ? `${this.message}: ${this.remedy}` : this.message;
  }
}

/**
 * @param {string} path
 * @param {Record<string, string | number | boolean | string[] | undefined>} [query]
 * @param {string} [prefix]
 */
export function address(path, query = {}, prefix = PREFIX) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined || value === "" || value === false) continue;
    for (const one of Array.isArray(value) ? value : [value]) words.append(key, String(one));
  }
  const text = words.toString();
  return `${prefix}${path}${text ? `?${text}` : ""}`;
}

/**
 * @param {string} url
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function request(url, options = {}) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "the daemon does not answer", "it may be restarting; the page goes on by itself");
  }
  if (answer.ok) return answer;
  let problem = /** @type {any} */ ({});
  try {
    problem = await answer.json();
  } catch {
    // not from the daemon itself
  }
  throw new ApiError(answer.status, problem.error || `status ${answer.status}`, problem.remedy || "", problem.kind || "");
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @param {string} [prefix]
 * @returns {Promise<any>}
 */
export async function get(path, query = {}, signal = undefined, prefix = PREFIX) {
  return (await request(address(path, query, prefix), { signal })).json();
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 */
export async function getBytes(path, query = {}, signal) {
  return new Uint8Array(await (await request(address(path, query), { signal })).arrayBuffer());
}

/**
 * @param {string} path
 * @param {any} [body]
 * @param {Record<string, any>} [query]
 * @param {Record<string, string>} [headers]
 * @param {string} [prefix]
 * @returns {Promise<any>}
 */
export async function post(path, body, query = {}, headers = {}, prefix = PREFIX) {
  /** @type {RequestInit} */
  const options = { method: "POST", headers };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { ...headers, "Content-Type": "application/json" };
  }
  const answer = await request(address(path, query, prefix), options);
  return answer.status === 204 ? null : answer.json();
}

/** @param {string} path */
export async function remove(path) {
  await request(address(path), { method: "DELETE" });
}
