// The clean room: a run's messages with their bytes, codecs, calibration, and what attacks reach.

import { h, s } from "/console/dom.js";
import { count } from "/console/format.js";
import { table } from "/console/parts.js";
import { dots, dotsHeight } from "../plots/dots.js";
import { lineChart } from "../plots/lines.js";
import { diamond, minus, origin, plot, range } from "../plots/shared.js";

/** @typedef {{ from: "platform" | "room", what: string, bytes: number }} Message */

const SHOWN = 8; // attacks, before somebody asks for all

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export async function cleanroom(root, env) {
  const data = await env.get("/page/data/cleanroom.json");
  root.append(
    h(
      "div",
      { class: "pair" },
      exchange(data.run),
      codecs(data.codecs),
      calibration(data.calibration),
      lineChart(data.reader),
    ),
    attacks(data.attacks),
  );
}

/** Which message goes which way. @param {any} run */
function exchange(run) {
  /** @type {Message[]} */
  const messages = run.messages;
  const second = messages.findIndex((each) => each.what.startsWith("step 2"));
  const rest = messages.slice(second);
  const again = rest.filter((each) => each.from === "platform");
  const back = rest.filter((each) => each.from === "room");
  const shown = [
    ...messages.slice(0, second),
    { from: "platform", what: `steps 2 to ${run.steps}: the same again`, bytes: sum(again) },
    { from: "room", what: `steps 2 to ${run.steps}: sums and receipts`, bytes: sum(back) },
  ];
  return h(
    "figure",
    { class: "frame" },
    h(
      "figcaption",
      {},
      h("strong", {}, "A run's messages"),
      h(
        "span",
        {},
        `${count(run.clicks)} made-up clicks, an adapter of ${count(run.parameters)} numbers, ${run.steps} steps. The room looks labels up by keyed tokens; none of them is in any message.`,
      ),
    ),
    h("div", { class: "parties", "aria-hidden": "true" }, h("span", {}, "Platform"), h("span", {}, "Room")),
    h("ol", { class: "exchange" }, shown.map(message)),
    h(
      "p",
      { class: "source" },
      `${count(sum(messages.filter((each) => each.from === "platform")))} bytes to the room, ${count(sum(messages.filter((each) => each.from === "room")))} back. ${run.statement}`,
    ),
  );
}

/** @param {Message[]} messages */
function sum(messages) {
  return messages.reduce((all, each) => all + each.bytes, 0);
}

/** @param {any} each */
function message(each) {
  const right = each.from === "platform";
  const words = right ? "to the room: " : "to the platform: ";
  return h(
    "li",
    { class: right ? "right" : "left" },
    h("span", { class: "what" }, h("span", { class: "unseen" }, words), each.what),
    h("span", { class: "size" }, `${count(each.bytes)} bytes`),
  );
}

/** Bytes of one click's derivatives by codec, and what each costs. @param {any} data */
function codecs(data) {
  const most = Math.max(...data.rows.map((/** @type {any} */ each) => each.bytes));
  const columns = [
    {
      title: "Codec",
      cell: (/** @type {any} */ row) => [row.name, bar(row.bytes / most, row.factored)],
    },
    {
      title: "Size",
      unit: "bytes per click",
      number: true,
      cell: (/** @type {any} */ row) => count(Math.round(row.bytes)),
    },
    {
      title: "AUC",
      unit: "change, %",
      number: true,
      cell: (/** @type {any} */ row) => [
        minus(row.auc_percent.value, 3),
        row.published_percent !== null &&
          h("span", { class: "below" }, diamond(), minus(row.published_percent, 2)),
      ],
      hover: (/** @type {any} */ row) => range(row.auc_percent),
    },
  ];
  return h(
    "figure",
    { class: "frame" },
    h(
      "figcaption",
      {},
      h("strong", {}, "Bytes by codec"),
      h(
        "span",
        {},
        `What one click's derivatives take, at rank ${data.rank}. Derivatives are outer products, so two short factors say as much as the whole matrix.`,
      ),
    ),
    table("Bytes by codec", columns, data.rows),
    h("p", { class: "source" }, diamond(), `printed by ${data.source.paper}, for other data`),
    origin([data.source]),
  );
}

/** @param {number} share @param {boolean} ours */
function bar(share, ours) {
  return s(
    "svg",
    {
      class: `size-bar ${ours ? "m-ours" : "m-rr"}`,
      viewBox: "0 0 100 6",
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    s("rect", { class: "solid", width: (100 * share).toFixed(2), height: 6 }),
  );
}

/** Predicted over observed. @param {any} data */
function calibration(data) {
  const rows = data.rows.map((/** @type {any} */ each) => {
    const name = each.epsilon === null ? each.name : `ε ${each.epsilon}, ${each.name}`;
    return {
      ...each,
      name,
      mechanism: each.debiased === null ? "non-private" : each.debiased ? "ours" : "RR",
      words: `${name}: ${range(each)}`,
    };
  });
  const high = Math.max(...rows.map((/** @type {any} */ each) => Math.max(each.high, each.published ?? 0)));
  return h(
    "figure",
    { class: "frame" },
    h(
      "figcaption",
      {},
      h("strong", {}, "Calibration"),
      h(
        "span",
        {},
        "A model of flipped labels predicts too much, and bids would follow. A loss that knows how labels were flipped brings it back to 1.",
      ),
    ),
    plot(dotsHeight(rows.length), (width) =>
      dots({
        title: "Predicted over observed",
        axis: "predicted / observed",
        rows,
        width,
        low: 0,
        high: high * 1.03,
        wanted: 1,
      }),
    ),
    h("p", { class: "source" }, diamond(), `printed by ${data.source.paper}, for other data`),
    origin([data.source]),
  );
}

/** What each attack reaches against what it works on, and in the room. @param {any} data */
function attacks(data) {
  const columns = [
    { title: "Attack", cell: (/** @type {any} */ row) => row.attack },
    { title: "Works against", cell: (/** @type {any} */ row) => row.works_against },
    {
      title: "Success there",
      unit: "as measured",
      number: true,
      cell: (/** @type {any} */ row) => [row.reached.toFixed(3), h("span", { class: "below" }, row.measured)],
    },
    {
      title: "In tacit's room",
      unit: "guesses right",
      number: true,
      cell: (/** @type {any} */ row) =>
        row.said ? `${count(row.right)} of ${count(row.said)}` : "nothing to guess by",
    },
    {
      title: "Beyond a coin",
      unit: "below: surely",
      number: true,
      cell: (/** @type {any} */ row) => [
        minus(row.advantage, 3),
        h("span", { class: "below" }, minus(row.at_least, 3)),
      ],
    },
    {
      title: "Terms allow",
      unit: `at ε ${data.epsilon}`,
      number: true,
      cell: (/** @type {any} */ row) => row.allowed.toFixed(3),
    },
  ];
  const place = h("div", { id: "attacks-table" }, table("Attacks", columns, data.rows.slice(0, SHOWN)));
  const more = h(
    "button",
    { type: "button", "aria-controls": "attacks-table" },
    `Show all ${data.rows.length}`,
  );
  more.addEventListener("click", () => {
    place.replaceChildren(table("Attacks", columns, data.rows));
    more.remove();
    /** @type {HTMLElement | null} */ (place.querySelector(".wide"))?.focus({ preventScroll: true });
    place.querySelector("tr:nth-child(9) th")?.scrollIntoView({ block: "nearest" });
  });
  return h(
    "figure",
    { class: "frame" },
    h(
      "figcaption",
      {},
      h("strong", {}, "Attacks"),
      h(
        "span",
        {},
        `Each finds nearly every label where it works. The room flips labels before it reads them, once and for ever: at epsilon ${data.epsilon} one in ${Math.round(1 + Math.exp(data.epsilon))}. An attack there finds flipped labels, and tells no more than the terms allow; a smaller epsilon flips more of them.`,
      ),
    ),
    place,
    more,
    origin([data.source]),
  );
}
