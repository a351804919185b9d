// @ts-check
/** What terminals understand, as pieces of text with styles; everything else is dropped. */

/** @typedef {{text: string, style: string}} Piece `style`: classes for the style sheet */

// eslint-disable-next-line no-control-regex
const CODES = /\x1b(?:\[([0-9;:?]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
const MOST_LINES = 5000;

/** The styles that SGR sequences switch on and off. */
class Pen {
  constructor() {
    this.fore = "";
    this.back = "";
    /** @type {Set<string>} */
    this.marks = new Set();
  }

  reset() {
    this.fore = "";
    this.back = "";
    this.marks.clear();
  }

  get style() {
    return [...this.marks, this.fore && `f${this.fore}`, this.back && `b${this.back}`].filter(Boolean).join(" ");
  }

  /** @param {string} codes as in `1;31` */
  apply(codes) {
    const numbers = codes.split(/[;:]/).map(Number);
    for (let at = 0; at < numbers.length; at += 1) {
      const code = numbers[at];
      if (code === 38 || code === 48) {
        const colour = numbers[at + 1] === 5 ? nearest256(numbers[at + 2]) : nearestOf(numbers[at + 2], numbers[at + 3], numbers[at + 4]);
        if (code === 38) this.fore = colour;
        else this.back = colour;
        at += numbers[at + 1] === 5 ? 2 : 4;
      } else this.switch(code);
    }
  }

  /** @param {number} code */
  switch(code) {
    if (!code) this.reset();
    else if (code === 1) this.marks.add("bold");
    else if (code === 2) this.marks.add("faint");
    else if (code === 3) this.marks.add("italic");
    else if (code === 4) this.marks.add("underline");
    else if (code === 7) this.marks.add("inverse");
    else if (code === 9) this.marks.add("strike");
    else if (code === 22) ["bold", "faint"].forEach((mark) => this.marks.delete(mark));
    else if (code === 23) this.marks.delete("italic");
    else if (code === 24) this.marks.delete("underline");
    else if (code === 27) this.marks.delete("inverse");
    else if (code === 29) this.marks.delete("strike");
    else if (code === 39) this.fore = "";
    else if (code === 49) this.back = "";
    else if (code >= 30 && code <= 37) this.fore = String(code - 30);
    else if (code >= 40 && code <= 47) this.back = String(code - 40);
    else if (code >= 90 && code <= 97) this.fore = String(code - 82);
    else if (code >= 100 && code <= 107) this.back = String(code - 92);
  }
}

/**
 * One of the sixteen colours for one of 256: they follow the theme, so that all can be read.
 * @param {number} number
 */
function nearest256(number) {
  if (!(number >= 0)) return "";
  if (number < 16) return String(number);
  if (number >= 232) return number < 244 ? "8" : "7";
  const cube = number - 16;
  return nearestOf(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51);
}

/** @param {number} red @param {number} green @param {number} blue */
function nearestOf(red, green, blue) {
  const most = Math.max(red, green, blue);
  const bits = [red, green, blue].reduce((sum, part, bit) => sum + (part > most / 2 && part > 60 ? 1 << bit : 0), 0);
  return String(bits + (most > 180 && bits !== 7 ? 8 : 0));
}

/** The lines of an output as it grows. */
export class Terminal {
  constructor() {
    /** @type {Piece[][]} the last one may go on */
    this.lines = [[]];
    this.dropped = 0;
    this.pen = new Pen();
    this.rest = "";
    this.home = false;
    this.decoder = new TextDecoder();
  }

  /**
   * @param {Uint8Array} data
   * @returns {number} the first line that has changed
   */
  write(data) {
    const text = this.rest + this.decoder.decode(data, { stream: true });
    const cut = text.lastIndexOf("\x1b");
    const whole = cut < 0 || text.length - cut > 64 || complete(text.slice(cut)) ? text.length : cut;
    this.rest = text.slice(whole);
    const from = this.lines.length - 1;
    let at = 0;
    CODES.lastIndex = 0;
    const shown = text.slice(0, whole);
    for (let match = CODES.exec(shown); match; match = CODES.exec(shown)) {
      this.plain(shown.slice(at, match.index));
      if (match[2] === "m") this.pen.apply(match[1]);
      at = match.index + match[0].length;
    }
    this.plain(shown.slice(at));
    const over = this.lines.length - MOST_LINES;
    if (over > 0) {
      this.lines.splice(0, over);
      this.dropped += over;
      return 0;
    }
    return from;
  }

  /** @param {string} text */
  plain(text) {
    for (const part of text.split(/(\n|\r)/)) {
      if (part === "\n") {
        this.lines.push([]);
        this.home = false;
      } else if (part === "\r") this.home = true;
      else if (part) {
        if (this.home) this.lines[this.lines.length - 1] = [];
        this.home = false;
        // eslint-disable-next-line no-control-regex
        const clean = part.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
        if (clean) this.lines[this.lines.length - 1].push({ text: clean, style: this.pen.style });
      }
    }
  }
}

/** @param {string} sequence */
function complete(sequence) {
  CODES.lastIndex = 0;
  const match = CODES.exec(sequence);
  return match !== null && match.index === 0;
}
