// Rows of dots with their intervals, and what each is to be compared with: a stroke for the truth, a diamond for
// what was published.

import { s } from "/console/dom.js";
import { DIAMOND, at, look, minus, steps, widest } from "./shared.js";

/**
 * @typedef {object} Row of a chart of dots
 * @property {string} name
 * @property {number | null} value with its interval from low to high; null where there is none
 * @property {number} low
 * @property {number} high
 * @property {number} [truth] a stroke
 * @property {number | null} [published] a diamond
 * @property {string} mechanism
 * @property {string} words what it says, for the pointer and for who listens
 */

const ROW = 26;

/** How high a chart of dots is. @param {number} rows */
export function dotsHeight(rows) {
  return rows * ROW + 44;
}

/**
 * A row for each name: a dot with its whisker, and what it is to be compared with.
 * @param {{ title: string, axis: string, rows: Row[], width: number, low: number, high: number, wanted?: number }} what
 */
export function dots({ title, axis, rows, width, low, high, wanted }) {
  const height = dotsHeight(rows.length);
  const gutter = 16 + widest(rows.map((each) => each.name));
  const ticks = steps(low, high, Math.max(3, Math.floor((width - gutter) / 90)));
  const room = width - gutter - 28;
  /** @param {number} value */
  const x = (value) => gutter + (room * (Math.min(high, Math.max(low, value)) - low)) / (high - low || 1);
  const bottom = height - 38;
  return s(
    "svg",
    {
      class: "chart dots",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": `${title}: ${rows.map((each) => each.words).join("; ")}`,
    },
    ticks.flatMap((each) => [
      s("line", {
        class: each === 0 ? "rule zero" : "rule",
        x1: x(each).toFixed(1),
        x2: x(each).toFixed(1),
        y1: 2,
        y2: bottom,
      }),
      s("text", { class: "tick", x: x(each).toFixed(1), y: bottom + 15, "text-anchor": "middle" }, minus(each)),
    ]),
    s(
      "text",
      { class: "tick", x: (gutter + room / 2).toFixed(1), y: height - 5, "text-anchor": "middle" },
      axis,
    ),
    wanted !== undefined &&
      s("line", { class: "wanted", x1: x(wanted).toFixed(1), x2: x(wanted).toFixed(1), y1: 2, y2: bottom }),
    rows.map((each, place) => {
      const y = place * ROW + ROW / 2 + 2;
      return s(
        "g",
        { class: look(each.mechanism) },
        s("title", {}, each.words),
        s("text", { class: "name", x: gutter - 12, y: y + 4, "text-anchor": "end" }, each.name),
        each.truth !== undefined &&
          s("line", {
            class: "truth",
            x1: x(each.truth).toFixed(1),
            x2: x(each.truth).toFixed(1),
            y1: y - 8,
            y2: y + 8,
          }),
        each.value !== null && whisker(each, each.value, x, y, low, high),
        each.published !== undefined &&
          each.published !== null &&
          s("path", { class: "published", d: DIAMOND, transform: at(x(each.published), y) }),
      );
    }),
  );
}

/** @param {Row} row @param {number} value @param {(value: number) => number} x @param {number} y @param {number} low @param {number} high */
function whisker(row, value, x, y, low, high) {
  if (value > high || value < low) {
    // An arrow at the edge, and how much it is: clear of the stroke of the truth.
    const words = Math.round(value).toLocaleString("en-GB").replace("-", "−");
    const [place, way] = value > high ? [x(high) + 14, 1] : [x(low) + 2, -1];
    const truth = row.truth === undefined ? Infinity : x(row.truth);
    const start = way > 0 ? place - 6 - widest([words]) : place + 6;
    const isHit = truth > start - 6 && truth < start + widest([words]) + 6;
    return [
      s("path", { class: "beyond", d: `M${place} ${y - 5}L${place + 8 * way} ${y}L${place} ${y + 5}Z` }),
      s(
        "text",
        {
          class: "name",
          x: (isHit ? truth - way * 8 : start + (way > 0 ? widest([words]) : 0)).toFixed(1),
          y: y + 4,
          "text-anchor": way > 0 ? "end" : "start",
        },
        words,
      ),
    ];
  }
  return [
    s("line", { class: "whisker", x1: x(row.low).toFixed(1), x2: x(row.high).toFixed(1), y1: y, y2: y }),
    s("circle", { class: "mark-at", cx: x(value).toFixed(1), cy: y, r: 4.5 }),
  ];
}
