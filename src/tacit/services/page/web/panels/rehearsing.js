// Tap many times: the device's own law, drawn a thousand times in a worker, against its exact chances.

import { h } from "/console/dom.js";
import { count } from "/console/format.js";
import { compare, shares, sharesHeight } from "../plots/shares.js";
import { plot } from "../plots/shared.js";
import { placeName } from "../handset.js";

/** @typedef {{ plan: { kept: number, top: number } | null, chances: number[], counts: number[], trouble?: string }} Drawn */

const EPSILONS = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8];
const MECHANISMS = {
  trunc: "the best few by everybody’s rates; yours count among them",
  top: "all of them; some of your best are favoured",
  rr: "all of them; your one best is favoured (randomized response)",
};
const MOST = 8;
const DRAWS = 1000;
const EXTRA = ["Made-up ad A", "Made-up ad B", "Made-up ad C", "Made-up ad D", "Made-up ad E", "Made-up ad F"];
const FIRST_EXTRA = 1001;
/** Stands in for a menu that nobody has asked for yet. */
const STAND_IN = [
  { campaign: 1, bidMicros: 620_000, rate: 0.02 },
  { campaign: 2, bidMicros: 500_000, rate: 0.02 },
  { campaign: 3, bidMicros: 9_000_000, rate: 0.001 },
  { campaign: 4, bidMicros: 8500, rate: 1 },
];

/** @param {import("../main.js").Env} env @param {import("../handset.js").Handset} device */
export function rehearsal(env, device) {
  const worker = new Worker(new URL("../rehearsal.js", import.meta.url), { type: "module" });
  const epsilon = dial(
    "epsilon",
    "Epsilon",
    "what one choice may give away",
    EPSILONS.length - 1,
    EPSILONS.indexOf(1),
  );
  const number = dial("number", "Ads", "to choose among", MOST - 2, 2);
  const mechanism = h(
    "p",
    { class: "dial" },
    h("label", { for: "rehearsal-mechanism" }, "Law"),
    h(
      "select",
      { id: "rehearsal-mechanism", "aria-describedby": "rehearsal-mechanism-words" },
      Object.keys(MECHANISMS).map((each) => h("option", {}, each)),
    ),
    h("span", { id: "rehearsal-mechanism-words", class: "words" }),
  );
  const form = h(
    "form",
    { class: "dials" },
    epsilon,
    mechanism,
    number,
    h("button", { type: "submit", class: "main" }, `Choose ${count(DRAWS)} times`),
  );
  const said = h("p", { class: "verdict", role: "status" });
  const about = h("p", { class: "source" });
  const picture = h("div", { class: "picture" });
  picture.style.minHeight = `${sharesHeight(4)}px`;
  /** @type {Drawn & { draws: number, names: string[] }} */
  let now = { plan: null, chances: [], counts: [], draws: 0, names: [] };
  let last = 0;

  const settings = () => ({
    epsilon: EPSILONS[Number(input(epsilon).value)],
    candidates: Number(input(number).value) + 2,
    mechanism: /** @type {HTMLSelectElement} */ (mechanism.querySelector("select")).value,
  });
  /** @param {number} draws */
  const draw = (draws) => {
    const wanted = settings();
    const menu = menuFor(device, wanted);
    last += 1;
    const names = menu.entries.map(
      (/** @type {{ campaign: number }} */ { campaign }) =>
        EXTRA[campaign - FIRST_EXTRA] ?? device.name(campaign),
    );
    const { parties } = env;
    const profile = device.profile(menu.entries);
    worker.postMessage({
      id: last,
      menu,
      profile,
      context: device.context,
      parties: { hierarchy: parties.hierarchy, disclosure: parties.disclosure },
      draws,
    });
    now = { ...now, names };
  };
  worker.addEventListener("message", ({ data }) => {
    if (data.id !== last) return;
    if (data.trouble) {
      said.textContent = `This cannot be rehearsed: ${data.trouble}.`;
      return;
    }
    const added = data.counts.reduce((/** @type {number} */ all, /** @type {number} */ each) => all + each, 0);
    const before =
      added && now.counts.length === data.counts.length ? now : { draws: 0, counts: data.counts.map(() => 0) };
    now = {
      ...now,
      plan: data.plan,
      chances: data.chances,
      draws: before.draws + added,
      counts: data.counts.map(
        (/** @type {number} */ each, /** @type {number} */ at) => each + before.counts[at],
      ),
    };
    const rows = now.names.map((name, at) => ({ name, drawn: now.counts[at], chance: now.chances[at] }));
    said.textContent = sentence(now, rows);
    picture.replaceChildren(
      plot(sharesHeight(rows.length), (width) =>
        shares({ title: "Shares that were drawn, and exact chances", rows, draws: now.draws, width }),
      ),
    );
  });

  const turn = () => {
    const { epsilon: value, candidates, mechanism: law } = settings();
    show(epsilon, String(value), `epsilon ${value}`);
    show(number, String(candidates), `${candidates} ads`);
    const words = mechanism.querySelector(".words");
    if (words) words.textContent = MECHANISMS[/** @type {keyof typeof MECHANISMS} */ (law)];
    const real = device.menu("personal");
    about.textContent = `A rehearsal by the device’s own code: nothing is shown, nothing leaves, nothing is spent. These dials act here only; the phone’s real choices go by the epsilon of the menu they were sent${real ? `, ${real.epsilonMicros / 1e6} here` : ""}. ${real ? `Candidates are those of ${placeName(real.node)}` : "Until you agree on the phone, candidates stand in for a menu"}${candidates > (real?.entries.length ?? STAND_IN.length) ? ", and some are made up" : ""}.`;
    now = { ...now, draws: 0, counts: [] };
    draw(0);
  };
  form.addEventListener("input", turn);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    said.textContent = "Drawing…";
    draw(DRAWS);
  });
  let menu = "";
  env.bus.addEventListener("device", () => {
    const key = JSON.stringify([device.liking, device.context, device.menu("personal")?.entries]);
    if (key !== menu) turn();
    menu = key;
  });
  turn();

  return h(
    "figure",
    { class: "frame rehearsal" },
    h(
      "figcaption",
      {},
      h("strong", {}, "Tap many times"),
      h(
        "span",
        {},
        "One choice says little about its law. A thousand by the same law show it: bars are what was drawn, rings are the exact chances.",
      ),
    ),
    h("div", { class: "pair uneven" }, h("div", {}, form, about), h("div", {}, said, picture)),
  );
}

/** @param {string} name @param {string} label @param {string} words @param {number} most @param {number} start */
function dial(name, label, words, most, start) {
  const id = `rehearsal-${name}`;
  return h(
    "p",
    { class: "dial" },
    h("label", { for: id }, label),
    h("input", {
      id,
      type: "range",
      min: 0,
      max: most,
      step: 1,
      value: start,
      "aria-describedby": `${id}-words`,
    }),
    h("output", { for: id }),
    h("span", { id: `${id}-words`, class: "words" }, words),
  );
}

/** @param {HTMLElement} row */
function input(row) {
  return /** @type {HTMLInputElement} */ (row.querySelector("input"));
}

/** @param {HTMLElement} row @param {string} value @param {string} words */
function show(row, value, words) {
  input(row).setAttribute("aria-valuetext", words);
  const shown = row.querySelector("output");
  if (shown) shown.textContent = value;
}

/** The phone's menu as the dials have it: cut, or with candidates that are made up behind the others. @param {import("../handset.js").Handset} device @param {{ epsilon: number, candidates: number, mechanism: string }} wanted */
function menuFor(device, { epsilon, candidates, mechanism }) {
  const real = device.menu("personal");
  /** @type {any} */
  const base = real ?? {
    node: device.disclosed,
    entries: STAND_IN,
    finer: [],
    prior: {},
    rule: "second price per impression",
  };
  const entries = base.entries
    .slice(0, candidates)
    .map((/** @type {any} */ each) => ({ ...each, priceMicros: 0 }));
  const worth = entries.map((/** @type {any} */ each) => each.bidMicros * each.rate);
  while (entries.length < candidates) {
    const extra = entries.length - Math.min(candidates, base.entries.length);
    const least = Math.min(...worth) * 0.97 ** (extra + 1);
    entries.push({
      campaign: FIRST_EXTRA + extra,
      bidMicros: Math.floor(least / 0.02),
      rate: 0.02,
      priceMicros: 0,
    });
  }
  const { node, finer, prior, rule } = base;
  return {
    lane: "personal",
    node,
    rule,
    finer,
    prior: candidates === base.entries.length ? prior : {}, // it may have a figure for each candidate
    entries,
    mechanism,
    epsilonMicros: Math.round(epsilon * 1e6),
    ctrFloor: 0,
    nothingRank: null,
    nothingMicros: null,
  };
}

/** What came out, in words. @param {Drawn & { draws: number }} now @param {import("../plots/shares.js").Share[]} rows */
function sentence(now, rows) {
  if (!now.plan)
    return "At this epsilon chance would cost more than tastes bring: everybody is shown the first, nothing private is read, and nothing is given away.";
  const { kept, top } = now.plan;
  const law = `${top === 1 ? "Your best one" : `Your best ${top}`} of ${kept} ${top === 1 ? "is" : "are"} favoured.`;
  if (!now.draws) return `${law} Rings are the exact chances; draw to see them met.`;
  const { distance, freedom, tail, gap, name, impossible } = compare(rows, now.draws);
  const verdict =
    impossible || tail < 1e-9
      ? "Further apart than chance should bring them"
      : tail < 0.01
        ? "Far apart for chance, which happens"
        : "As near as chance allows";
  return `${verdict}: of ${count(now.draws)} draws none is further from its exact chance than ${(100 * gap).toFixed(1)} points (${name}). ${freedom ? `Chi-square ${distance.toFixed(1)} at ${freedom} ${freedom === 1 ? "degree" : "degrees"} of freedom, p = ${tail < 0.001 ? tail.toExponential(0) : tail.toFixed(3)}.` : "The others are too rare to test."}`;
}
