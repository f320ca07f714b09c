// Lines over epsilon on a log axis, with intervals as bands, levels, and published figures as hollow diamonds.

import { h, s } from "/console/dom.js";
import { table } from "/console/parts.js";
import {
  DIAMOND,
  at,
  diamond,
  look,
  mark,
  minus,
  origin,
  plot,
  range,
  short,
  steps,
  swatch,
  widest,
} from "./shared.js";

/**
 * @typedef {object} Point
 * @property {number} epsilon
 * @property {number} value
 * @property {number} low
 * @property {number} high
 *
 * @typedef {object} Line
 * @property {string} name
 * @property {string} mechanism
 * @property {number} variant
 * @property {Point[]} points
 *
 * @typedef {object} Chart
 * @property {string} id
 * @property {string} title
 * @property {string} axis
 * @property {string} words
 * @property {import("./shared.js").Source[]} sources
 * @property {number[]} ticks
 * @property {Line[]} lines
 * @property {{ name: string, value: number }[]} levels
 * @property {{ name: string, mechanism: string, epsilon: number | null, value: number }[]} published
 * @property {number | null} least
 *
 * @typedef {{ words: string, epsilon: number | null, value: number, look: string }} Label
 */

const HEIGHT = 264;
const HEAD = 10;
const FOOT = 40;
const LINE = 15;
const NARROW = 440; // below it, lines are named under the plot; page.css has the same

/** A figure with its caption, plot, legend, note, and all of it in figures. @param {Chart} chart */
export function lineChart(chart) {
  const papers = [...new Set(chart.sources.map((each) => each.paper))].join(", ");
  return h(
    "figure",
    { class: "frame" },
    h(
      "figcaption",
      {},
      h("strong", {}, chart.title),
      h("span", {}, chart.words),
      h("span", { class: "axis" }, chart.axis),
    ),
    plot(HEIGHT, (width) => drawLines(chart, width)),
    h(
      "ul",
      { class: "legend", "aria-hidden": "true" },
      chart.lines.map((each) => h("li", {}, swatch(each.mechanism, each.variant), each.name)),
      chart.levels.map((each) => h("li", {}, swatch("non-private"), each.name)),
    ),
    chart.published.length > 0 &&
      h("p", { class: "source" }, diamond(), `printed by ${papers}, for other data`),
    chart.least !== null && h("p", { class: "source" }, `What is below ${minus(chart.least)} is not drawn.`),
    origin(chart.sources),
    h("details", {}, h("summary", {}, "In figures"), figures(chart)),
  );
}

/** @param {Chart} chart @param {number} width */
function drawLines(chart, width) {
  const least = chart.least ?? -Infinity;
  const lines = chart.lines.map((each) => ({
    ...each,
    points: each.points.filter((one) => one.value >= least),
  }));
  const heights = [
    ...lines.flatMap((each) => each.points.flatMap((one) => [Math.max(one.low, least), one.high])),
    ...chart.levels.map((each) => each.value),
    ...chart.published.map((each) => each.value),
  ];
  const bottom = Math.min(0, ...heights);
  const top = Math.max(...heights);
  const rules = steps(bottom, top);
  const named = width >= NARROW;
  const gutter = 8 + widest(rules.map((each) => minus(each)));
  const right = named
    ? Math.min(width * 0.45, 20 + widest(labelled(chart, lines).map((each) => each.words)))
    : 10;
  const first = Math.log(chart.ticks[0]);
  const last = Math.log(chart.ticks[chart.ticks.length - 1]);
  const room = width - gutter - right - 24;
  /** @param {number} epsilon */
  const x = (epsilon) => gutter + 12 + (room * (Math.log(epsilon) - first)) / (last - first || 1);
  /** @param {number} value */
  const y = (value) => HEAD + (HEIGHT - HEAD - FOOT) * (1 - (value - bottom) / (top - bottom || 1));
  const edge = width - right;
  return s(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${width} ${HEIGHT}`,
      width,
      height: HEIGHT,
      role: "img",
      "aria-label": spoken(chart),
    },
    rules.flatMap((value) => [
      s("line", {
        class: value === 0 ? "rule zero" : "rule",
        x1: gutter,
        x2: edge,
        y1: y(value).toFixed(1),
        y2: y(value).toFixed(1),
      }),
      s(
        "text",
        { class: "tick", x: gutter - 6, y: (y(value) + 4).toFixed(1), "text-anchor": "end" },
        minus(value),
      ),
    ]),
    epsilonAxis(chart.ticks, x, (gutter + edge) / 2),
    chart.levels.map((each) => level(each.value, gutter, edge, y)),
    // What nobody has lies above what is compared with it, or it would be hidden.
    [false, true].flatMap((beyond) =>
      lines
        .filter((each) => (each.mechanism === "non-private") === beyond)
        .map((each) => drawLine(each, x, y, least)),
    ),
    named && names(labelled(chart, lines), x, y, edge),
    chart.published.map((each) => {
      const place = each.epsilon === null ? edge - 8 : x(each.epsilon);
      return s(
        "g",
        { class: look(each.mechanism) },
        s("title", {}, `${each.name}, published: ${short(each.value)}`),
        s("path", { class: "published", d: DIAMOND, transform: at(place, y(each.value)) }),
        named && !atEnd(chart, each) && beside(each.name, place, y(each.value)),
      );
    }),
  );
}

/** Ticks at the values used, and what they are of. @param {number[]} ticks @param {(epsilon: number) => number} x @param {number} middle */
function epsilonAxis(ticks, x, middle) {
  let behind = -Infinity;
  return [
    ticks.map((each) => {
      const words = String(each);
      const place = x(each);
      const fits = place - behind > widest([words]) + 5;
      if (fits) behind = place;
      return [
        s("line", {
          class: "rule",
          x1: place.toFixed(1),
          x2: place.toFixed(1),
          y1: HEIGHT - FOOT,
          y2: HEIGHT - FOOT + 4,
        }),
        fits &&
          s(
            "text",
            { class: "tick", x: place.toFixed(1), y: HEIGHT - FOOT + 17, "text-anchor": "middle" },
            words,
          ),
      ];
    }),
    s("text", { class: "tick", x: middle.toFixed(1), y: HEIGHT - 5, "text-anchor": "middle" }, "epsilon"),
  ].flat(2);
}

/** @param {number} value @param {number} left @param {number} edge @param {(value: number) => number} y */
function level(value, left, edge, y) {
  return s(
    "g",
    { class: look("non-private") },
    s("line", { class: "line", x1: left, x2: edge, y1: y(value).toFixed(1), y2: y(value).toFixed(1) }),
  );
}

/** @param {Line} line @param {(epsilon: number) => number} x @param {(value: number) => number} y @param {number} least */
function drawLine(line, x, y, least) {
  if (!line.points.length) return null;
  /** @param {(point: Point) => number} of @param {Point[]} points */
  const path = (of, points) =>
    points.map((each) => `${x(each.epsilon).toFixed(1)} ${y(of(each)).toFixed(1)}`).join("L");
  const low = (/** @type {Point} */ each) => Math.max(each.low, least);
  const [only] = line.points;
  const interval =
    line.points.length > 1
      ? s("path", {
          class: "band",
          d: `M${path((each) => each.high, line.points)}L${path(low, line.points.slice().reverse())}Z`,
        })
      : s("line", {
          class: "whisker",
          x1: x(only.epsilon),
          x2: x(only.epsilon),
          y1: y(low(only)),
          y2: y(only.high),
        });
  return s(
    "g",
    { class: look(line.mechanism, line.variant) },
    interval,
    s("path", { class: "line", d: `M${path((each) => each.value, line.points)}` }),
    line.points.map((each) =>
      s(
        "g",
        {},
        s("title", {}, `${line.name}, epsilon ${each.epsilon}: ${range(each)}`),
        mark(line.mechanism, x(each.epsilon), y(each.value)),
      ),
    ),
  );
}

/** Whether a published figure is where lines end, and is named there. @param {Chart} chart @param {{ epsilon: number | null }} each */
function atEnd(chart, each) {
  return each.epsilon === null || each.epsilon === chart.ticks[chart.ticks.length - 1];
}

/** The name of a published figure amid the plot: on its right, or on its left down where lines end. @param {string} name @param {number} x @param {number} y */
function beside(name, x, y) {
  const isLow = y > HEIGHT - FOOT - 24;
  const place = {
    x: (isLow ? x - 9 : x + 9).toFixed(1),
    y: (y + 4).toFixed(1),
    "text-anchor": isLow ? "end" : "start",
  };
  return s("text", { class: "name beside", ...place }, name);
}

/** What is named right of the plot. @param {Chart} chart @param {Line[]} lines @returns {Label[]} */
function labelled(chart, lines) {
  const ends = lines
    .filter((each) => each.points.length)
    .map((each) => ({ ...each, ...each.points[each.points.length - 1] }));
  const printed = chart.published.filter((each) => atEnd(chart, each));
  return [
    ...ends.map((each) => ({
      words: each.name,
      epsilon: each.epsilon,
      value: each.value,
      look: look(each.mechanism, each.variant),
    })),
    ...printed.map((each) => ({
      words: `${each.name}, published`,
      epsilon: each.epsilon,
      value: each.value,
      look: look(each.mechanism),
    })),
    ...chart.levels.map((each) => ({
      words: each.name,
      epsilon: null,
      value: each.value,
      look: look("non-private"),
    })),
  ];
}

/** Names at their lines' ends, with a leader where they had to move. @param {Label[]} labels @param {(epsilon: number) => number} x @param {(value: number) => number} y @param {number} edge */
function names(labels, x, y, edge) {
  const places = spread(
    labels.map((each) => y(each.value)),
    HEAD,
    HEIGHT - FOOT,
  );
  return labels.map((each, place) => {
    const from = each.epsilon === null ? edge : x(each.epsilon) + 6;
    const height = y(each.value).toFixed(1);
    return s(
      "g",
      { class: each.look },
      s("path", {
        class: "leader",
        d: `M${from.toFixed(1)} ${height}L${edge + 2} ${height}L${edge + 10} ${places[place].toFixed(1)}`,
      }),
      s("text", { class: "name", x: edge + 14, y: (places[place] + 4).toFixed(1) }, each.words),
    );
  });
}

/** Places as near as can be to the wanted ones, in their order, at least a line apart, within bounds. @param {number[]} wanted @param {number} low @param {number} high */
function spread(wanted, low, high) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b]);
  const places = wanted.slice();
  for (let turn = 0; turn < 60; turn++) {
    for (let at = 1; at < order.length; at++) {
      const lack = LINE - (places[order[at]] - places[order[at - 1]]);
      if (lack <= 0) continue;
      places[order[at]] += lack / 2;
      places[order[at - 1]] -= lack / 2;
    }
    for (const at of order) places[at] = Math.min(high, Math.max(low, places[at]));
  }
  return places;
}

/** The chart for who does not see it: where each line begins and ends. @param {Chart} chart */
function spoken(chart) {
  const parts = chart.lines.map((each) => {
    const [start, end] = [each.points[0], each.points[each.points.length - 1]];
    return `${each.name} from ${minus(start.value)} at epsilon ${start.epsilon} to ${minus(end.value)} at ${end.epsilon}`;
  });
  return `${chart.title}, ${chart.axis}: ${parts.join("; ")}`;
}

/** @param {Chart} chart */
function figures(chart) {
  const rows = [
    ...chart.lines.map((each) => ({
      name: each.name,
      by: new Map(each.points.map((one) => [one.epsilon, range(one)])),
    })),
    ...chart.published.map((each) => ({
      name: `${each.name}, published`,
      by: new Map(
        (each.epsilon === null ? chart.ticks : [each.epsilon]).map((one) => [one, minus(each.value)]),
      ),
    })),
    ...chart.levels.map((each) => ({
      name: each.name,
      by: new Map(chart.ticks.map((one) => [one, minus(each.value)])),
    })),
  ];
  const columns = [
    { title: "Line", cell: (/** @type {any} */ row) => row.name },
    ...chart.ticks.map((each) => ({
      title: `ε ${each}`,
      number: true,
      cell: (/** @type {any} */ row) => row.by.get(each) ?? "",
    })),
  ];
  return table(`${chart.title} in figures`, columns, rows);
}
