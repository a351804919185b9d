// @ts-check
/** The board of the cluster as it comes over the wire: which job has which GPU. */

/** @typedef {{name: string, state: string, gpus: number, type: string, first: number}} BoardNode */
/** @typedef {{id: number, gpus: number, since: number, name: string, user: string, queue: string, used: number | null}} BoardJob */

/**
 * Owners of places: triples of numbers of variable length (gap, count, difference of owners).
 * @param {string} text base64
 * @param {(first: number, count: number, owner: number) => void} each
 */
export function unpackRuns(text, each) {
  const data = atob(text);
  let place = 0;
  let owner = 0;
  let at = 0;
  const next = () => {
    let value = 0;
    let factor = 1;
    for (;;) {
      const byte = data.charCodeAt(at);
      at += 1;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
      factor *= 128;
    }
  };
  while (at < data.length) {
    place += next();
    const count = next();
    const change = next();
    owner += change % 2 ? -(change - 1) / 2 : change / 2;
    each(place, count, owner);
    place += count;
  }
}

/** @param {any[]} row @param {number} first @returns {BoardNode} */
function nodeOf(row, first) {
  return { name: row[0], state: row[1], gpus: row[2], type: row[3], first };
}

/** The state that messages build up. */
export class Board {
  constructor() {
    /** @type {BoardNode[]} */
    this.nodes = [];
    /** The job of each GPU, 0 for none; nodes one after the other. */
    this.owners = new Uint32Array(0);
    /** @type {Map<number, number[]>} by place: all jobs of a GPU that several have */
    this.shared = new Map();
    /** @type {Map<number, BoardJob>} those that may be seen */
    this.jobs = new Map();
    /** @type {Record<string, number>} */
    this.counts = {};
    this.now = 0;
    this.events = 0;
    this.known = false;
  }

  /**
   * @param {"full" | "delta"} kind
   * @param {any} data
   * @returns {number[] | null} places that have changed; null: everything
   */
  take(kind, data) {
    this.now = data.now;
    this.events = data.events;
    this.counts = data.counts;
    if (kind === "full") {
      let first = 0;
      this.nodes = data.nodes.map((/** @type {any[]} */ row) => {
        const node = nodeOf(row, first);
        first += node.gpus;
        return node;
      });
      this.owners = new Uint32Array(first);
      this.jobs.clear();
      this.shared.clear();
    }
    /** @type {number[]} */
    const changed = [];
    unpackRuns(data.runs, (first, count, owner) => {
      for (let place = first; place < first + count; place += 1) {
        this.owners[place] = owner;
        changed.push(place);
      }
    });
    for (const [place, owners] of Object.entries(data.shared || {})) {
      if (owners.length) this.shared.set(Number(place), owners);
      else this.shared.delete(Number(place));
      changed.push(Number(place));
    }
    for (const [id, gpus, since, name, user, queue, used] of data.jobs) {
      this.jobs.set(id, { id, gpus, since, name, user, queue, used });
    }
    for (const id of data.gone || []) this.jobs.delete(id);
    this.known = true;
    if (kind === "full") return null;
    for (const [place, row] of data.nodes) {
      const node = nodeOf(row, this.nodes[place].first);
      this.nodes[place] = node;
      for (let gpu = node.first; gpu < node.first + node.gpus; gpu += 1) changed.push(gpu);
    }
    return changed;
  }

  /** GPUs that jobs have, and all of nodes that are not down. */
  get use() {
    let used = 0;
    let total = 0;
    for (const node of this.nodes) {
      if (node.state === "down") continue;
      total += node.gpus;
      for (let place = node.first; place < node.first + node.gpus; place += 1) used += this.owners[place] ? 1 : 0;
    }
    return { used, total };
  }
}
