// @ts-check
/** Tables of numbers as short texts: columns one after the other, compressed. Made by `rota.report.columns`. */

/** @typedef {Float32Array | Float64Array | Int32Array | Uint32Array | Uint16Array | Uint8Array} Column */
/** @typedef {{n: number, of: [string, string, number?][], zip: string}} Packed name, kind and unit of each column */

const KINDS = /** @type {Record<string, any>} */ ({ f4: Float32Array, f8: Float64Array, i4: Int32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array, d4: Int32Array });

/**
 * @param {Packed} packed
 * @returns {Promise<Record<string, Column>>} by name
 */
export async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.zip), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  /** @type {Record<string, Column>} */
  const found = {};
  let at = 0;
  for (const [name, kind, unit = 1] of packed.of) {
    const size = KINDS[kind].BYTES_PER_ELEMENT * packed.n;
    const values = new KINDS[kind](buffer.slice(at, at + size)); // a slice: columns begin anywhere
    found[name] = kind === "d4" ? sums(values, unit) : values;
    at += size;
  }
  return found;
}

/**
 * Times that were written as the steps between them.
 * @param {Int32Array} steps
 * @param {number} unit seconds
 */
function sums(steps, unit) {
  const made = new Float64Array(steps.length);
  let at = 0;
  for (let i = 0; i < steps.length; i += 1) made[i] = (at += steps[i]) * unit;
  return made;
}

/**
 * The last index with `values[index] <= value`; -1: none.
 * @param {ArrayLike<number>} values rising
 * @param {number} value
 */
export function lastBefore(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
