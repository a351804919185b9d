// @ts-check
/** Colours that mean something: the same name always has the same colour, in light and dark. */

/** Told apart with the common kinds of colour blindness; light and dark variants. */
const PALETTE = [
  ["#3366cc", "#7aa2f7"], ["#d9730d", "#f5a35b"], ["#1f8a5b", "#5cc99a"], ["#b0357f", "#e583bd"],
  ["#7a5cc9", "#b39df3"], ["#b58900", "#e6c34d"], ["#0f8b9d", "#5fc7d6"], ["#8c4a2f", "#cf9275"],
  ["#5a7d1e", "#a5c860"], ["#c23b3b", "#f08080"],
];

/** @returns {boolean} does the page use dark colours? */
export function isDark() {
  const wanted = document.documentElement.dataset.theme;
  if (wanted === "dark" || wanted === "light") return wanted === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Gives names colours in the order in which they come. */
export class Palette {
  constructor() {
    /** @type {Map<string, number>} */
    this.known = new Map();
  }

  /**
   * @param {string} name
   * @returns {number} its place
   */
  place(name) {
    let place = this.known.get(name);
    if (place === undefined) this.known.set(name, (place = this.known.size));
    return place;
  }

  /**
   * @param {string} name
   * @param {boolean} [dark]
   */
  colour(name, dark = isDark()) {
    return PALETTE[this.place(name) % PALETTE.length][dark ? 1 : 0];
  }
}

/**
 * A colour for a number, far from those of the numbers beside it.
 * @param {number} value
 * @param {boolean} [dark]
 */
export function hueOf(value, dark = isDark()) {
  const hue = (value * 137.508) % 360;
  return `hsl(${hue.toFixed(1)} ${dark ? "55% 62%" : "58% 48%"})`;
}

/**
 * From little to much: light to dark on a light page, the other way on a dark one.
 * @param {number} share from 0 to 1
 * @param {boolean} [dark]
 */
export function ramp(share, dark = isDark()) {
  const at = Math.min(1, Math.max(0, share));
  const light = dark ? 30 + 48 * at : 88 - 55 * at;
  return `hsl(${(215 - 15 * at).toFixed(0)} ${(45 + 25 * at).toFixed(0)}% ${light.toFixed(0)}%)`;
}

/**
 * How old something is, between a minute and a week, on a scale of ratios.
 * @param {number} seconds
 */
export function ageShare(seconds) {
  return Math.log(Math.max(1, seconds / 60)) / Math.log(7 * 24 * 60);
}
