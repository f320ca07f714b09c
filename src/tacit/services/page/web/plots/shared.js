// What plots share: colours, dashes and markers by mechanism, boxes that are drawn for their width, round steps,
// and numbers in words. A mechanism looks the same everywhere.

import { h, s } from "/console/dom.js";

/**
 * @typedef {{ study: string, unit: string, relation: string, data: string, command: string, paper: string | null }} Source
 */

const MARKS = {
  RR: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
  "DP-SGD": "M-3.2 -3.2H3.2V3.2H-3.2Z",
  Hybrid: "M0 -4.2L4 3.2H-4Z",
  SNM: "M0 4.2L4 -3.2H-4Z",
  "noisy counts": "M-4.2 0L3.2 -4V4Z",
  ours: "M-1.6 -4.4H1.6V-1.6H4.4V1.6H1.6V4.4H-1.6V1.6H-4.4V-1.6H-1.6Z",
};

export const DIAMOND = "M0 -5L5 0L0 5L-5 0Z";
const PEN = document.createElement("canvas").getContext("2d");

/** How wide words are in a plot, in the reader's own font. @param {string[]} words */
export function widest(words) {
  if (!PEN) return 7.5 * Math.max(0, ...words.map((each) => each.length));
  PEN.font = `12.5px ${getComputedStyle(document.body).fontFamily}`;
  return Math.max(
    0,
    ...words.map((each) => /** @type {CanvasRenderingContext2D} */ (PEN).measureText(each).width),
  );
}

/** Which colour, dashes and marker a line has, as classes. @param {string} mechanism @param {number} [variant] */
export function look(mechanism, variant = 0) {
  return `m-${mechanism.toLowerCase().replaceAll(" ", "-")}${variant ? " variant" : ""}`;
}

/**
 * A box of a fixed height that is drawn for its width, and again when that changes.
 * @param {number} height
 * @param {(width: number) => SVGElement} draw
 */
export function plot(height, draw) {
  const box = h("div", { class: "plot" });
  box.style.height = `${height}px`;
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width > 0 && width !== last) box.replaceChildren(draw(width));
    last = width;
  }).observe(box);
  return box;
}

/** Round steps that a range is read by. @param {number} low @param {number} high @param {number} [about] */
export function steps(low, high, about = 5) {
  const rough = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((each) => each * power >= rough * 0.999) ?? 10) * power;
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push(at * step || 0);
  return ticks;
}

/** @param {number} value */
export function short(value) {
  return value.toLocaleString("en-GB", { maximumSignificantDigits: 3 });
}

/** With a minus sign that is as wide as digits are. @param {number} value @param {number} [digits] behind the point */
export function minus(value, digits) {
  const shown = digits === undefined ? short(value || 0) : value.toFixed(digits);
  return shown.replace(/^-(0*\.?0*)$/, "$1").replace("-", "−");
}

/** @param {{ value: number, low: number, high: number }} each */
export function range(each) {
  return each.low === each.high
    ? minus(each.value)
    : `${minus(each.value)} (${minus(each.low)} to ${minus(each.high)})`;
}

/** @param {number} x @param {number} y */
export function at(x, y) {
  return `translate(${x.toFixed(1)} ${y.toFixed(1)})`;
}

/** @param {string} mechanism @param {number} x @param {number} y */
export function mark(mechanism, x, y) {
  const shape = MARKS[/** @type {keyof typeof MARKS} */ (mechanism)];
  return shape && s("path", { class: "mark-at", d: shape, transform: at(x, y) });
}

/** @param {string} mechanism @param {number} [variant] */
export function swatch(mechanism, variant = 0) {
  return s(
    "svg",
    {
      class: `swatch ${look(mechanism, variant)}`,
      viewBox: "0 0 28 12",
      width: 28,
      height: 12,
      "aria-hidden": "true",
    },
    s("line", { class: "line", x1: 1, x2: 27, y1: 6, y2: 6 }),
    mark(mechanism, 14, 6),
  );
}

/** The sign of a published figure. */
export function diamond() {
  return s(
    "svg",
    {
      class: "swatch m-non-private",
      viewBox: "-7 -7 14 14",
      width: 14,
      height: 14,
      role: "img",
      "aria-label": "diamond",
    },
    s("path", { class: "published", d: DIAMOND }),
  );
}

/** What figures are of, and how to make them again. @param {Source[]} sources */
export function origin(sources) {
  return sources.map((each) =>
    h(
      "p",
      { class: "source" },
      `Per ${each.unit}, ${each.relation}; ${each.data}. `,
      h("code", {}, each.study),
    ),
  );
}
