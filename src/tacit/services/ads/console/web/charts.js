// Charts in SVG, drawn for the width that there is: light horizontal rules, labels where the data is, one accent.

import { h, s } from "./dom.js";
import { count } from "./format.js";

const HEIGHT = 168;
const FOOT = 22;
const HEAD = 14;

/** A number from 1, 2 or 5 times a power of ten up, at least as large. @param {number} value */
export function roundTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value * 0.999999) ?? 10 * power;
}

/**
 * @typedef {object} Bar
 * @property {string} label of its place, below it
 * @property {number} value
 * @property {string} words what it is, read out and shown on hover
 */

/**
 * @param {{ title: string, subtitle: string, bars: Bar[], width: number, show: (value: number) => string }} what
 */
export function barChart({ title, subtitle, bars, width, show }) {
  const top = roundTop(Math.max(...bars.map((bar) => bar.value), 0));
  const gutter = 8 + 7 * Math.max(show(top).length, show(top / 2).length);
  const room = Math.max(40, width - gutter);
  const step = Math.min(48, room / Math.max(1, bars.length));
  const y = scale(top);
  const drawing = s(
    "svg",
    frame(
      width,
      `${title}: ${bars
        .map((bar) => bar.words)
        .slice(-6)
        .join("; ")}`,
    ),
    rules(top, width, gutter, y, show),
    bars.map((bar, place) => {
      const height = HEIGHT - FOOT - y(bar.value);
      return s(
        "g",
        {},
        s("title", {}, bar.words),
        s("rect", {
          class: "hit",
          x: gutter + place * step,
          y: HEAD,
          width: step,
          height: HEIGHT - FOOT - HEAD,
        }),
        s("rect", {
          class: "bar",
          x: (gutter + place * step + step * 0.15).toFixed(1),
          y: y(bar.value).toFixed(1),
          width: (step * 0.7).toFixed(1),
          height: Math.max(bar.value > 0 ? 1 : 0, height).toFixed(1),
        }),
      );
    }),
    names(
      bars.map((bar) => bar.label),
      gutter,
      step,
    ),
  );
  return figure(title, subtitle, drawing, bars);
}

/**
 * @typedef {object} Dot
 * @property {number} place in the order of the labels
 * @property {number} value
 * @property {boolean} filled
 * @property {string} words
 */

/**
 * Sizes on a log axis, as they spread from small to large.
 * @param {{ title: string, subtitle: string, labels: string[], dots: Dot[], width: number, wanted: number | null }} what
 */
export function dotChart({ title, subtitle, labels, dots, width, wanted }) {
  const top = roundTop(Math.max(...dots.map((dot) => dot.value), wanted ?? 1, 10));
  const gutter = 8 + 7 * count(top).length;
  const step = Math.min(64, Math.max(40, width - gutter) / Math.max(1, labels.length));
  /** @param {number} value */
  const y = (value) => HEAD + (HEIGHT - FOOT - HEAD) * (1 - Math.log10(Math.max(1, value)) / Math.log10(top));
  const ticks = [];
  for (let each = 1; each <= top; each *= 10) ticks.push(each);
  const drawing = s(
    "svg",
    frame(
      width,
      `${title}: ${dots
        .map((dot) => dot.words)
        .slice(0, 6)
        .join("; ")}`,
    ),
    ticks.map((tick) => rule(tick, width, gutter, y(tick), count)),
    wanted !== null &&
      wanted > 1 && [
        s("line", {
          class: "wanted",
          x1: gutter,
          x2: width,
          y1: y(wanted).toFixed(1),
          y2: y(wanted).toFixed(1),
        }),
        s(
          "text",
          { class: "tick wanted", x: width, y: (y(wanted) - 5).toFixed(1), "text-anchor": "end" },
          `asked for: ${count(wanted)}`,
        ),
      ],
    dots.map((dot) => {
      const x = gutter + (dot.place + (dot.filled ? 0.4 : 0.6)) * step;
      const shape = dot.filled
        ? s("circle", { class: "dot", cx: x.toFixed(1), cy: y(dot.value).toFixed(1), r: 4 })
        : s("rect", {
            class: "dot hollow",
            x: (x - 3.5).toFixed(1),
            y: (y(dot.value) - 3.5).toFixed(1),
            width: 7,
            height: 7,
          });
      return s("g", {}, s("title", {}, dot.words), shape);
    }),
    names(labels, gutter, step),
  );
  return figure(title, subtitle, drawing, dots);
}

/** @param {number} top @returns {(value: number) => number} */
function scale(top) {
  return (value) => HEAD + (HEIGHT - FOOT - HEAD) * (1 - value / top);
}

/** @param {number} width @param {string} words */
function frame(width, words) {
  return {
    class: "chart",
    viewBox: `0 0 ${width} ${HEIGHT}`,
    width,
    height: HEIGHT,
    role: "img",
    "aria-label": words,
  };
}

/** @param {number} top @param {number} width @param {number} gutter @param {(value: number) => number} y @param {(value: number) => string} show */
function rules(top, width, gutter, y, show) {
  return [0, top / 2, top].map((value) => rule(value, width, gutter, y(value), show));
}

/** @param {number} value @param {number} width @param {number} gutter @param {number} y @param {(value: number) => string} show */
function rule(value, width, gutter, y, show) {
  return s(
    "g",
    {},
    s("line", { class: "rule", x1: gutter, x2: width, y1: y.toFixed(1), y2: y.toFixed(1) }),
    s("text", { class: "tick", x: gutter - 8, y: (y + 4).toFixed(1), "text-anchor": "end" }, show(value)),
  );
}

/** What stands below a chart: as many of the labels as there is room for, the last one among them. @param {string[]} labels @param {number} gutter @param {number} step */
function names(labels, gutter, step) {
  const every = Math.max(1, Math.ceil(44 / step));
  return labels.map((label, place) =>
    (labels.length - 1 - place) % every === 0
      ? s(
          "text",
          {
            class: "tick",
            x: (gutter + (place + 0.5) * step).toFixed(1),
            y: HEIGHT - 6,
            "text-anchor": "middle",
          },
          label,
        )
      : null,
  );
}

/** @param {string} title @param {string} subtitle @param {SVGElement} drawing @param {{ words: string }[]} data */
function figure(title, subtitle, drawing, data) {
  return h(
    "figure",
    { "data-key": title },
    h("figcaption", {}, h("strong", {}, title), h("span", {}, subtitle)),
    drawing,
    h(
      "details",
      {},
      h("summary", {}, "In figures"),
      h(
        "ul",
        { class: "figures", tabindex: 0 },
        data.map((each) => h("li", {}, each.words)),
      ),
    ),
  );
}
