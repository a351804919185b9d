// @ts-check
/**
 * A key that never leaves this browser: with it a page comes again after a restart of the daemon,
 * which forgets all sessions. What is signed is good once, and for one port only.
 */

import { get, post } from "./api.js";

const KIND = { name: "ECDSA", namedCurve: "P-256" };
const PATIENCE_MS = 5000; // with a store of the browser that may never answer

/** @param {ArrayBuffer} data */
function base64url(data) {
  return btoa(String.fromCharCode(...new Uint8Array(data))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @returns {Promise<IDBDatabase>} */
function database() {
  return new Promise((done, failed) => {
    const asked = indexedDB.open("rota", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("keys");
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => failed(asked.error);
    setTimeout(() => failed(new Error("the browser's store of keys does not answer")), PATIENCE_MS);
  });
}

/**
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest} act
 * @returns {Promise<any>}
 */
async function stored(mode, act) {
  const opened = await database();
  try {
    return await new Promise((done, failed) => {
      const asked = act(opened.transaction("keys", mode).objectStore("keys"));
      asked.onsuccess = () => done(asked.result);
      asked.onerror = () => failed(asked.error);
    });
  } finally {
    opened.close();
  }
}

/** Let the daemon know this browser's key. Pages that are not encrypted on a network have none. */
export async function keepKey() {
  if (!crypto.subtle) return;
  let pair = await stored("readonly", (store) => store.get("own"));
  if (!pair) {
    pair = await crypto.subtle.generateKey(KIND, false, ["sign"]);
    await stored("readwrite", (store) => store.put(pair, "own"));
  }
  await post("/web/keys", { key: base64url(await crypto.subtle.exportKey("raw", pair.publicKey)) });
}

/**
 * Come again with the key.
 * @returns {Promise<boolean>} is there a session now?
 */
export async function resume() {
  const pair = crypto.subtle && (await stored("readonly", (store) => store.get("own")));
  if (!pair) return false;
  const { challenge } = await get("/web/challenge", {}, undefined, "");
  const port = location.port || (location.protocol === "https:" ? "443" : "80");
  const text = new TextEncoder().encode(`rota resume ${challenge} ${port}`);
  const signature = base64url(await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, pair.privateKey, text));
  const key = base64url(await crypto.subtle.exportKey("raw", pair.publicKey));
  try {
    await post("/web/resume", { key, challenge, signature }, {}, {}, "");
    return true;
  } catch {
    return false; // it is not known any more: its holder logs in again
  }
}

/** Nobody shall come again with it. */
export async function dropKey() {
  if (crypto.subtle) await stored("readwrite", (store) => store.delete("own"));
}
