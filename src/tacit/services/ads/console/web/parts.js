// Pieces that views are made of: facts, tables, meters, marks, words for those who ask what something is.

import { h, s } from "./dom.js";
import { exactly, money, stamp } from "./format.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {string} [unit] stands below the title
 * @property {boolean} [number] right-aligned
 * @property {boolean} [words] a sentence, which needs room
 * @property {(row: any) => Child | Child[]} cell
 * @property {(row: any) => string} [hover]
 */

/**
 * Rows in a box of their own, which scrolls where they are wider than the page.
 * @param {string} name
 * @param {Column[]} columns
 * @param {any[]} rows
 * @param {(row: any) => string | number} [key]
 */
export function table(name, columns, rows, key) {
  const head = columns.map((each) =>
    h(
      "th",
      { scope: "col", class: each.number ? "number" : null },
      each.title,
      each.unit && h("small", {}, each.unit),
    ),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      { "data-key": key ? key(row) : null },
      columns.map((each, place) =>
        h(
          place ? "td" : "th",
          {
            scope: place ? null : "row",
            class: each.number ? "number" : each.words ? "words" : null,
            title: each.hover ? each.hover(row) : null,
          },
          each.cell(row),
        ),
      ),
    ),
  );
  return h(
    "div",
    { class: "sheet" },
    h(
      "div",
      { class: "wide", role: "region", "aria-label": name, tabindex: 0 },
      h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
    ),
    h("p", { class: "more", "aria-hidden": "true" }, "scroll for more columns →"),
  );
}

/** An amount whose exact value shows on hover. @param {number | null} micros @param {number} digits @param {string} [none] */
export function amount(micros, digits, none = "no limit") {
  if (micros === null) return h("span", { class: "muted" }, none);
  return h("span", { title: exactly(micros) }, money(micros, digits));
}

/** @param {number} second @param {string} words */
export function time(second, words) {
  return h("time", { datetime: new Date(second * 1000).toISOString(), title: stamp(second) }, words);
}

/** @param {{ value: Child, label: string, note?: Child | Child[], hover?: string, href?: string }[]} each */
export function facts(each) {
  return h(
    "dl",
    { class: "facts" },
    each.map((fact) =>
      h(
        "div",
        {},
        h("dt", {}, fact.href ? h("a", { href: fact.href }, fact.label) : fact.label),
        h("dd", { class: "large", title: fact.hover }, fact.value),
        h("dd", { class: "note" }, fact.note),
      ),
    ),
  );
}

/**
 * How much of something is used; the figures stand beside it, so it is only for the eye.
 * @param {number} share
 * @param {number} [also] a second share behind it, hatched: what is reserved or held
 */
export function meter(share, also = 0) {
  const used = Math.min(100, Math.max(0, 100 * share));
  const more = Math.min(100 - used, Math.max(0, 100 * also));
  return s(
    "svg",
    {
      class: `meter${share >= 0.9 ? " nearly" : ""}`,
      viewBox: "0 0 100 6",
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    s("rect", { class: "whole", width: 100, height: 6 }),
    s("rect", { class: "used", width: used.toFixed(2), height: 6 }),
    more > 0 && s("rect", { class: "also", x: used.toFixed(2), width: more.toFixed(2), height: 6 }),
  );
}

/** A mark and a word, so that neither colour nor shape is alone. @param {"good" | "bad" | "soon" | "idle"} kind @param {Child} words */
export function mark(kind, words) {
  return h("span", { class: `mark ${kind}` }, words);
}

/** @param {string} title @param {...(Child | Child[])} children */
export function panel(title, ...children) {
  return h("section", { "data-key": title }, h("h2", {}, title), children);
}

/** @param {...(Child | Child[])} words */
export function empty(...words) {
  return h("p", { class: "empty" }, words);
}

/** @param {string} label @param {string} value @param {string} hint */
export function finder(label, value, hint) {
  return h(
    "p",
    { class: "finder" },
    h("label", { for: "find" }, label),
    h("input", {
      id: "find",
      type: "search",
      value,
      placeholder: hint,
      "data-input": "find",
      autocomplete: "off",
      spellcheck: "false",
    }),
  );
}

const WORDS = {
  epsilon:
    "Epsilon says how much one choice, or one count, can tell about a person: at 0 nothing, at 1 what is seen is at most 2.7 times as likely for them as for anybody else. Smaller is more private, and what is spent adds up.",
  cohort:
    "A cohort is the reports of one menu that left the proxy together, shuffled. The ad server sees the choices in it and not whose they are: the more reports, the less each tells. Its size is signed by the proxy.",
  lane: "In the personal lane a device that agreed chooses by itself, privately, among the entries. In the public lane everybody in a context is shown the same one entry, and nothing private is read.",
  held: "Held is what was shown after a campaign's money had run out. It is charged when the budget is raised, the oldest first, and never otherwise.",
  out: "Out is what could still be charged if every token that was given out came back as the dearest entry. Pacing keeps it below the budget that is left, but for a stated share.",
};

/** "What is this?" in plain words. @param {(keyof typeof WORDS)[]} names */
export function explain(...names) {
  return h(
    "div",
    { class: "explain" },
    names.map((name) =>
      h(
        "details",
        { "data-key": name },
        h(
          "summary",
          {},
          `What is ${name === "epsilon" || name === "held" || name === "out" ? name : `a ${name}`}?`,
        ),
        h("p", {}, WORDS[name]),
      ),
    ),
  );
}
