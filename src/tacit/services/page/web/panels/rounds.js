// A round of statistics by the real code, simulated on the server: dials, and the estimate against the truth.

import { h } from "/console/dom.js";
import { count, percent, plural } from "/console/format.js";
import { dots, dotsHeight } from "../plots/dots.js";
import { hold, isHeld } from "../buttons.js";
import { plot } from "../plots/shared.js";

/**
 * @typedef {object} Dial
 * @property {string} name of the field that is posted
 * @property {string} label
 * @property {string} words what it does
 * @property {number[]} values
 * @property {number} start
 * @property {(value: number) => string} show
 *
 * @typedef {object} Round what came of one
 * @property {string[]} labels
 * @property {number[]} truth
 * @property {number[]} estimate
 * @property {number[]} low
 * @property {number[]} high
 * @property {boolean} released
 * @property {number} refused
 * @property {number} dropped
 * @property {number} accepted_lies reports of cheats that nothing told from others
 * @property {number} smallest_batch reports below which nothing is released
 * @property {string} statement
 */

const TOPICS = 12; // counts of a round: the plot's place is kept free for them
/** @type {Dial[]} */
const DIALS = [
  {
    name: "devices",
    label: "Devices",
    words: "that are asked",
    values: [100, 200, 500, 1000, 1500, 2000],
    start: 1000,
    show: count,
  },
  {
    name: "dropout",
    label: "Dropout",
    words: "share that is away",
    values: [0, 0.1, 0.25, 0.5, 0.75, 0.9],
    start: 0.1,
    show: percent,
  },
  {
    name: "cheats",
    label: "Cheats",
    words: "share that adds a million to the first count",
    values: [0, 0.01, 0.02, 0.05, 0.1, 0.2],
    start: 0,
    show: percent,
  },
  {
    name: "epsilon",
    label: "Epsilon",
    words: "that the round promises each device",
    values: [0.1, 0.25, 0.5, 1, 2, 4, 8],
    start: 1,
    show: String,
  },
];

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export function rounds(root, env) {
  let seed = 0;
  const form = h(
    "form",
    { class: "dials" },
    DIALS.map(dialRow),
    h(
      "p",
      { class: "switch" },
      h("input", {
        id: "round-proofs",
        type: "checkbox",
        role: "switch",
        checked: true,
        "aria-describedby": "round-proofs-words",
      }),
      h("label", { for: "round-proofs" }, "Proofs"),
      h(
        "span",
        { id: "round-proofs-words", class: "words" },
        "each report proves that its counts are in range",
      ),
    ),
    h("button", { type: "submit", class: "main" }, "Run a round"),
  );
  const said = h("p", { class: "outcome", role: "status" }, "No round has run yet.");
  const told = h("div", { class: "told" });
  const picture = h("div", { class: "picture" }, empty());
  root.append(h("div", { class: "pair uneven" }, form, h("div", {}, said, picture, key(), told)));

  form.addEventListener("input", (event) => {
    if (event.target instanceof HTMLInputElement && event.target.type === "range")
      showValue(form, event.target);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = /** @type {Element} */ (form.querySelector("button"));
    if (isHeld(button)) return;
    hold(button);
    said.classList.remove("trouble");
    said.textContent = "The round is running…";
    try {
      seed += 1;
      /** @type {Round} */
      const round = await env.post("/demonstration/round", { ...settings(form), seed });
      said.textContent = sentence(round);
      picture.replaceChildren(plot(dotsHeight(TOPICS), (width) => draw(round, width)));
      told.replaceChildren(promise(round));
    } catch (problem) {
      said.classList.add("trouble");
      said.textContent = problem instanceof Error ? problem.message : String(problem);
    }
    hold(button, false);
  });
}

/** @param {Dial} dial */
function dialRow(dial) {
  const id = `round-${dial.name}`;
  return h(
    "p",
    { class: "dial" },
    h("label", { for: id }, dial.label),
    h("input", {
      id,
      name: dial.name,
      type: "range",
      min: 0,
      max: dial.values.length - 1,
      step: 1,
      value: dial.values.indexOf(dial.start),
      "aria-valuetext": dial.show(dial.start),
      "aria-describedby": `${id}-words`,
    }),
    h("output", { for: id }, dial.show(dial.start)),
    h("span", { id: `${id}-words`, class: "words" }, dial.words),
  );
}

/** @param {HTMLElement} form @param {HTMLInputElement} input */
function showValue(form, input) {
  const dial = DIALS.find((each) => each.name === input.name);
  const words = dial ? dial.show(dial.values[Number(input.value)]) : "";
  input.setAttribute("aria-valuetext", words);
  const shown = form.querySelector(`output[for="${input.id}"]`);
  if (shown) shown.textContent = words;
}

/** @param {HTMLElement} form */
function settings(form) {
  /** @type {Record<string, number | boolean>} */
  const found = {};
  for (const { name, values } of DIALS) {
    const input = /** @type {HTMLInputElement} */ (form.querySelector(`#round-${name}`));
    found[name] = values[Number(input.value)];
  }
  found.proofs = /** @type {HTMLInputElement} */ (form.querySelector("#round-proofs")).checked;
  return found;
}

function empty() {
  const place = h(
    "p",
    { class: "empty" },
    "Set the dials and run a round: estimate and truth appear here, topic by topic.",
  );
  place.style.height = `${dotsHeight(TOPICS)}px`;
  return place;
}

/** How many rows have the truth in their interval. @param {Round} round */
function within(round) {
  return round.truth.filter((each, place) => each >= round.low[place] && each <= round.high[place]).length;
}

/** What happened, in one sentence. @param {Round} round */
function sentence(round) {
  const away = round.dropped ? ` ${plural(round.dropped, "device")} dropped out` : " Nobody dropped out";
  const refused = round.refused
    ? `, ${plural(round.refused, "report")} ${round.refused === 1 ? "was" : "were"} refused`
    : ", no report was refused";
  if (!round.released)
    return `Nothing was released:${away.toLowerCase()}${refused}, and fewer than ${count(round.smallest_batch)} were left, too few to hide anybody among.`;
  if (round.accepted_lies)
    return `Released, and spoilt:${away.toLowerCase()}${refused}, and ${plural(round.accepted_lies, "lie")} went into the sums. Turn proofs on.`;
  const hit = within(round);
  const all = round.truth.length;
  return `Released:${away.toLowerCase()}${refused}, and ${hit} of ${all} intervals hold the truth.`;
}

/** @param {Round} round @param {number} width */
function draw(round, width) {
  const top = Math.max(...round.truth, 1);
  const widest = round.released ? Math.max(...round.high.filter((each) => each < 20 * top), top) : top;
  const least = round.released ? Math.min(0, ...round.low.filter((each) => each > -20 * top)) : 0;
  const rows = round.labels.map((name, place) => ({
    name,
    truth: round.truth[place],
    value: round.released ? round.estimate[place] : null,
    low: round.low[place],
    high: round.high[place],
    mechanism: "ours",
    words: round.released
      ? `${name}: truth ${count(round.truth[place])}, estimate ${count(round.estimate[place])}, from ${count(Math.round(round.low[place]))} to ${count(Math.round(round.high[place]))}`
      : `${name}: truth ${count(round.truth[place])}`,
  }));
  return dots({
    title: "Estimate and truth by topic",
    axis: "impressions that devices saw",
    rows,
    width,
    low: least,
    high: widest * 1.02,
  });
}

/** What was promised, and what it took. @param {Round} round */
function promise(round) {
  return h(
    "details",
    {},
    h("summary", {}, "What the round promised"),
    h("p", { class: "statement" }, round.statement.replace(/\n(?!\n|- )(?<!\n\n)/g, " ")),
  );
}

function key() {
  return h(
    "p",
    { class: "key" },
    h("span", { class: "of-truth" }, "truth"),
    h("span", { class: "of-estimate" }, "estimate; 95 of 100 whiskers hold the truth"),
  );
}
