// Rows of bars with what each is to be: a bar for the share that was drawn, a hollow marker for the exact chance.

import { s } from "/console/dom.js";
import { count, percent } from "/console/format.js";
import { steps } from "./shared.js";

/** @typedef {{ name: string, drawn: number, chance: number }} Share */

const ROW = 40;
const FOOT = 22;

/** How high a chart of shares is. @param {number} rows */
export function sharesHeight(rows) {
  return rows * ROW + FOOT;
}

/** @param {{ title: string, rows: Share[], draws: number, width: number }} what */
export function shares({ title, rows, draws, width }) {
  const top = Math.max(0.5, ...rows.map((each) => Math.max(each.chance, draws ? each.drawn / draws : 0)));
  const high = Math.min(1, Math.ceil(top * 10) / 10);
  const height = sharesHeight(rows.length);
  const room = width - 36;
  /** @param {number} share */
  const x = (share) => 8 + (room * share) / high;
  const words = rows.map((each) => rowWords(each, draws));
  return s(
    "svg",
    {
      class: "chart shares",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": `${title}: ${rows.map((each, place) => `${each.name}, ${words[place]}`).join("; ")}`,
    },
    steps(0, high, Math.max(2, Math.floor(width / 110))).flatMap((each) => [
      s("line", { class: "rule", x1: x(each).toFixed(1), x2: x(each).toFixed(1), y1: 4, y2: height - FOOT }),
      s(
        "text",
        { class: "tick", x: x(each).toFixed(1), y: height - 5, "text-anchor": each ? "middle" : "start" },
        percent(each),
      ),
    ]),
    rows.map((each, place) => {
      const y = place * ROW;
      const share = draws ? each.drawn / draws : 0;
      return s(
        "g",
        {},
        s("title", {}, `${each.name}: ${words[place]}`),
        s("text", { class: "name beside-bar", x: 8, y: y + 14 }, each.name),
        s("text", { class: "tick beside", x: width - 8, y: y + 14, "text-anchor": "end" }, words[place]),
        s("rect", {
          class: "drawn",
          x: 8,
          y: y + 20,
          width: Math.max(0, x(share) - 8).toFixed(1),
          height: 12,
        }),
        s("circle", { class: "exact", cx: x(each.chance).toFixed(1), cy: y + 26, r: 5 }),
      );
    }),
  );
}

/** @param {Share} row @param {number} draws */
function rowWords({ drawn, chance }, draws) {
  const exact = chance ? `exactly ${(100 * chance).toFixed(1)}%` : "never";
  return draws ? `${count(drawn)} of ${count(draws)}, ${exact}` : exact;
}

/**
 * How far counts are from their chances: the largest difference of a share, and how often chance alone does as much
 * (chi-square, Pearson 1900).
 * @param {Share[]} rows
 * @param {number} draws
 */
export function compare(rows, draws) {
  const cells = pooled(rows, draws);
  const distance = cells.reduce(
    (all, each) => all + (each.drawn - draws * each.chance) ** 2 / (draws * each.chance),
    0,
  );
  const gaps = rows.map((each) => Math.abs(each.drawn / draws - each.chance));
  const worst = gaps.indexOf(Math.max(...gaps));
  return {
    distance,
    freedom: cells.length - 1,
    tail: chiSquareTail(distance, cells.length - 1),
    gap: gaps[worst],
    name: rows[worst].name,
    impossible: rows.some((each) => each.chance === 0 && each.drawn > 0),
  };
}

/** Cells of which five are expected at least, as the test needs them: rarer ones are counted together. @param {Share[]} rows @param {number} draws */
function pooled(rows, draws) {
  const rising = rows.filter((each) => each.chance > 0).sort((one, other) => one.chance - other.chance);
  /** @type {{ drawn: number, chance: number }[]} */
  const cells = [];
  let few = { drawn: 0, chance: 0 };
  for (const { drawn, chance } of rising) {
    few = { drawn: few.drawn + drawn, chance: few.chance + chance };
    if (draws * few.chance < 5) continue;
    cells.push(few);
    few = { drawn: 0, chance: 0 };
  }
  return cells;
}

/** How often a chi-square of so many degrees is at least x. @param {number} x @param {number} freedom */
export function chiSquareTail(x, freedom) {
  if (freedom < 1 || x <= 0) return 1;
  const half = x / 2;
  let tail = freedom % 2 ? normalTail(Math.sqrt(x)) : Math.exp(-half);
  let term =
    freedom % 2 ? Math.sqrt(half) * Math.exp(-half) * (2 / Math.sqrt(Math.PI)) : half * Math.exp(-half);
  for (let degrees = freedom % 2 ? 3 : 4; degrees <= freedom; degrees += 2) {
    tail += term;
    term *= half / (degrees / 2);
  }
  return Math.min(1, tail);
}

/** How often a normal is further from 0 than x, to about 1e-7 (Abramowitz and Stegun, 7.1.26). @param {number} x */
function normalTail(x) {
  const z = x / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * z);
  const series = [0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429];
  return series.reduceRight((sum, each) => (sum + each) * t, 0) * Math.exp(-z * z);
}
