// @ts-check
/** Signs for views and buttons. */

const SVG = "http://www.w3.org/2000/svg";

/** Drawings of 24 x 24, as strokes. */
const ICONS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z",
  jobs: "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
  submit: "M12 5v14M5 12h14",
  cluster: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  lanes: "M4 6h9M10 12h10M4 18h7M16 18h4",
  queues: "M4 20V10M10 20V4M16 20v-8M22 20H2",
  nodes: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  policy: "M4 7h10M18 7h2M4 17h2M10 17h10M16 4v6M8 14v6",
  people: "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21a7 7 0 0 1 14 0M17 11a3 3 0 1 0-1-6M22 20a6 6 0 0 0-5-6",
  audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.5 9.5a2.5 2.5 0 1 1 3.5 2.3c-.7.4-1 .9-1 1.7M12 17h.01",
  theme: "M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8z",
  leave: "M15 4h4v16h-4M10 8l-4 4 4 4M6 12h9",
  alert: "M12 3 2 20h20zM12 10v4M12 17h.01",
};

/**
 * @param {keyof typeof ICONS} name
 * @returns {SVGElement}
 */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.appendChild(path);
  return svg;
}
