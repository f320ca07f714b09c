// Campaigns and budgets; how far each may go in the current epoch.

import { h } from "../dom.js";
import { count, percent, places } from "../format.js";
import { amount, empty, explain, facts, finder, mark, meter, panel, table } from "../parts.js";

/** @typedef {import("../main.js").View} View */

const STATES = {
  running: ["good", "running"],
  spent: ["bad", "out of money"],
  paused: ["idle", "paused"],
  ended: ["idle", "ended"],
  waiting: ["idle", "not scheduled now"],
};

/** @param {string} state */
function stateMark(state) {
  const [kind, words] = /** @type {Record<string, string[]>} */ (STATES)[state] ?? ["idle", state];
  return mark(/** @type {any} */ (kind), words);
}

/** @type {View} */
export const campaigns = {
  path: "campaigns",
  title: "Campaigns",
  seenBy: () => true,
  finds: true,
  load: (session, { find }) =>
    session.get(`/ads/console/campaigns${find ? `?find=${encodeURIComponent(find)}` : ""}`),
  draw(data, { find, mayChange, who }) {
    const rows = data.campaigns;
    const digits = places(rows.flatMap((/** @type {any} */ row) => [row.charged_micros, row.held_micros]));
    const daily = rows.some((/** @type {any} */ row) => row.daily_micros !== null);
    return [
      finder("Find", find, who.sees_all ? "number, advertiser or title" : "number or title"),
      rows.length
        ? table(
            "Campaigns",
            [
              {
                title: "campaign",
                cell: (row) => [h("span", { class: "id" }, count(row.campaign)), " ", row.title],
              },
              ...(who.sees_all
                ? [{ title: "advertiser", cell: (/** @type {any} */ row) => row.advertiser }]
                : []),
              { title: "state", cell: (row) => stateMark(row.state) },
              {
                title: "budget",
                unit: "currency units",
                number: true,
                cell: (row) => amount(row.budget_micros, 2),
              },
              ...(daily
                ? [
                    {
                      title: "per day",
                      unit: "currency units",
                      number: true,
                      cell: (/** @type {any} */ row) => amount(row.daily_micros, 2, "–"),
                    },
                  ]
                : []),
              {
                title: "charged",
                unit: "currency units",
                number: true,
                cell: (row) => amount(row.charged_micros, digits),
              },
              {
                title: "held",
                unit: "currency units",
                number: true,
                cell: (row) =>
                  row.held_micros ? amount(row.held_micros, digits) : h("span", { class: "muted" }, "0"),
              },
              { title: "used", unit: "of its budget", number: true, cell: used },
              {
                title: "lately",
                unit: "impressions",
                number: true,
                cell: (row) => count(row.recent_impressions),
              },
              ...(mayChange ? [{ title: "change", cell: change }] : []),
            ],
            rows,
            (row) => row.campaign,
          )
        : nothing(find),
      data.all > rows.length &&
        h(
          "p",
          { class: "muted" },
          `The ${count(rows.length)} that were charged most, of ${count(data.all)}: narrow them down.`,
        ),
      explain("held"),
    ];
  },
};

/** @param {any} row */
function used(row) {
  if (!row.budget_micros) return h("span", { class: "muted" }, "–");
  const share = row.charged_micros / row.budget_micros;
  return h(
    "span",
    { class: "gauge" },
    meter(share, row.held_micros / row.budget_micros),
    h("span", {}, percent(share)),
  );
}

/** @param {any} row */
function change(row) {
  if (!row.may_change)
    return h(
      "span",
      { class: "muted", title: "It stands in the market's file, or is not this key's." },
      "in its file",
    );
  if (row.state === "ended") return h("span", { class: "muted" }, "none");
  const pauses = row.state !== "paused";
  return h(
    "span",
    { class: "buttons" },
    h(
      "button",
      { type: "button", "data-action": pauses ? "pause" : "resume", "data-campaign": row.campaign },
      pauses ? "Pause" : "Resume",
    ),
    h("button", { type: "button", "data-action": "budget", "data-campaign": row.campaign }, "Budget"),
  );
}

/** @param {string} find */
function nothing(find) {
  if (find) return empty(`No campaign has “${find}” in its number, advertiser or title.`);
  return empty(
    "There is no campaign yet. ",
    h("code", {}, "tacit ads add"),
    " takes one from a file; the API takes it at ",
    h("code", {}, "POST /ads/campaigns"),
    ".",
  );
}

/** @type {View} */
export const pacing = {
  path: "pacing",
  title: "Pacing",
  seenBy: () => true,
  load: (session) => session.get("/ads/pacing"),
  draw(data, { who }) {
    const rows = data.campaigns;
    if (!data.on) {
      return [
        empty(
          "Pacing is off: nothing keeps campaigns within a stated share of their budgets while charges are on their way. The settings' table ",
          h("code", {}, "[pacing]"),
          " turns it on.",
        ),
        explain("out"),
      ];
    }
    if (!rows.length) return [empty("There is no campaign to pace yet."), explain("out")];
    const late = rows.filter((/** @type {any} */ row) => row.within === false).length;
    const digits = places(
      rows.flatMap((/** @type {any} */ row) => [
        row.charged_micros + row.held_micros,
        row.out_micros,
        row.bound_micros,
      ]),
    );
    const daily = rows.some((/** @type {any} */ row) => row.daily_micros !== null);
    const worst = Math.max(0, ...rows.map((/** @type {any} */ row) => row.bound_share ?? 0));
    return [
      facts([
        {
          value: percent(worst),
          label: "over budget at worst",
          note: `of any campaign's budget; kept below ${percent(data.share)}`,
        },
        ...(who.sees_all
          ? [
              {
                value: count(data.ran_out),
                label: "menus out of tokens",
                note: `of ${count(data.menus)} in this epoch that have a limit`,
                href: "#/menus",
              },
            ]
          : []),
        {
          value: count(late),
          label: "over their share",
          note: late ? "a budget was lowered meanwhile" : "every campaign is within its share",
        },
      ]),
      panel(
        "How far each campaign can go",
        table(
          "Pacing",
          [
            {
              title: "campaign",
              cell: (row) => [h("span", { class: "id" }, count(row.campaign)), " ", row.advertiser],
            },
            {
              title: "budget",
              unit: "currency units",
              number: true,
              cell: (row) => amount(row.budget_micros, 2),
            },
            {
              title: "charged and held",
              unit: "currency units",
              number: true,
              cell: (row) => amount(row.charged_micros + row.held_micros, digits),
            },
            {
              title: "out",
              unit: "currency units",
              number: true,
              cell: (row) => amount(row.out_micros, digits),
            },
            { title: "of its budget", unit: "charged, then out", number: true, cell: spread },
            {
              title: "over at worst",
              unit: "currency units",
              number: true,
              cell: (row) => amount(row.bound_micros, digits, "–"),
            },
            {
              title: "kept below",
              unit: "currency units",
              number: true,
              cell: (row) => amount(row.allowed_micros, 2, "–"),
            },
            {
              title: "within",
              cell: (row) =>
                row.within === null
                  ? h("span", { class: "muted" }, "no limit")
                  : row.within
                    ? mark("good", "yes")
                    : mark("bad", "no"),
            },
            ...(daily
              ? [
                  {
                    title: "today",
                    unit: "spent of daily",
                    number: true,
                    cell: (/** @type {any} */ row) =>
                      row.daily_micros === null
                        ? h("span", { class: "muted" }, "–")
                        : [amount(row.day_spent_micros, digits), " of ", amount(row.daily_micros, 2)],
                  },
                  {
                    title: "by now",
                    unit: "even pace",
                    number: true,
                    cell: (/** @type {any} */ row) => amount(row.day_target_micros, digits, "–"),
                  },
                ]
              : []),
          ],
          rows,
          (row) => row.campaign,
        ),
      ),
      explain("out", "held"),
    ];
  },
};

/** @param {any} row */
function spread(row) {
  if (!row.budget_micros) return h("span", { class: "muted" }, "–");
  const share = (row.charged_micros + row.held_micros) / row.budget_micros;
  return h(
    "span",
    { class: "gauge" },
    meter(share, row.out_micros / row.budget_micros),
    h("span", {}, percent(share)),
  );
}
