// What is offered where, at which prices, and why.

import { h } from "../dom.js";
import { count, epsilon, moment, money, percent, places } from "../format.js";
import { amount, empty, explain, finder, panel, table, time } from "../parts.js";

/** @typedef {import("../main.js").View} View */

/** @type {View} */
export const menus = {
  path: "menus",
  title: "Menus",
  seenBy: () => true,
  finds: true,
  load(session, { find, rest }) {
    if (rest) return session.get(`/ads/console/menus/${encodeURIComponent(rest)}`);
    return session.get(`/ads/console/menus${find ? `?find=${encodeURIComponent(find)}` : ""}`);
  },
  draw(data, context) {
    return context.rest ? drawMenu(data, context.who) : drawMenus(data, context.find, context.who);
  },
};

/** @param {any} data @param {string} find @param {import("../session.js").Who} who */
function drawMenus(data, find, who) {
  const rows = data.menus;
  const digits = places(rows.map((/** @type {any} */ row) => row.best_micros));
  const whose = who.sees_all ? "menus" : "menus with an entry of yours";
  const limited = rows.some((/** @type {any} */ row) => row.tokens_most !== null);
  return [
    data.epoch
      ? h(
          "p",
          { class: "lead" },
          `${count(data.all)} ${whose} in epoch ${count(data.epoch.epoch)}, until `,
          time(data.epoch.closes, moment(data.epoch.closes, data.now)),
          " UTC. The next epoch has its own.",
        )
      : h("p", { class: "lead" }, "No epoch is open now."),
    finder("Find", find, "a context"),
    rows.length
      ? table(
          "Menus",
          [
            { title: "context", cell: (row) => h("a", { href: `#/menus/${row.menu}` }, row.context) },
            { title: "lane", cell: (row) => row.lane },
            { title: "mechanism", cell: (row) => h("code", {}, row.mechanism) },
            { title: "epsilon", unit: "per choice", number: true, cell: (row) => epsilon(row.epsilon) },
            { title: "entries", number: true, cell: (row) => count(row.entries) },
            {
              title: "best entry",
              unit: "currency units",
              number: true,
              cell: (row) => amount(row.best_micros, digits),
            },
            {
              title: "cohort",
              unit: "reports at least",
              number: true,
              cell: (row) => count(row.smallest_cohort),
            },
            ...(limited ? [{ title: "tokens", unit: "signed of most", number: true, cell: tokens }] : []),
          ],
          rows,
          (row) => row.menu,
        )
      : empty(
          find ? `No context has “${find}” in it.` : "No menu is offered: see the alerts, or raise a budget.",
        ),
    data.all > rows.length &&
      h("p", { class: "muted" }, `The first ${count(rows.length)} of ${count(data.all)}: narrow them down.`),
    explain("lane", "epsilon", "cohort"),
  ];
}

/** @param {any} row */
function tokens(row) {
  if (row.tokens_most === null) return h("span", { class: "muted" }, "no limit");
  return `${count(row.tokens_reserved)} of ${count(row.tokens_most)}`;
}

/** @param {any} data @param {import("../session.js").Who} who */
function drawMenu(data, who) {
  const digits = places(data.entries.flatMap((/** @type {any} */ each) => [each.price_micros]));
  return [
    h("p", { class: "back" }, h("a", { href: "#/menus" }, "All menus")),
    h(
      "p",
      { class: "lead" },
      data.context,
      ", ",
      data.lane,
      " lane, epoch ",
      count(data.epoch),
      data.closes ? [", until ", time(data.closes, moment(data.closes, data.now)), " UTC"] : ", which is over",
    ),
    panel(
      "Entries",
      table(
        "Entries",
        [
          { title: "rank", cell: (row) => count(row.index) },
          {
            title: "campaign",
            cell: (row) => [h("span", { class: "id" }, count(row.campaign)), " ", row.advertiser],
          },
          {
            title: "price",
            unit: "per impression",
            number: true,
            cell: (row) => amount(row.price_micros, digits),
          },
          { title: "bid", unit: "for its event", number: true, cell: (row) => amount(row.bid_micros, 2) },
          { title: "public rate", unit: "of that event", number: true, cell: (row) => percent(row.rate) },
          { title: "why this price", words: true, cell: (row) => row.reason },
        ],
        data.entries,
        (row) => row.index,
      ),
      !who.sees_all && h("p", { class: "muted" }, `Your entries, of ${count(data.size)}.`),
    ),
    panel(
      "How devices choose",
      h(
        "dl",
        { class: "said" },
        pair("mechanism", h("code", {}, data.mechanism)),
        pair("epsilon of one choice", epsilon(data.epsilon)),
        pair("priced by", data.rule),
        pair("reserve", [money(data.reserve_micros), " currency units"]),
        pair("reports that leave together", `${count(data.smallest_cohort)} at least`),
        data.lane === "personal" && pair("how far a device's own scores may lie from public ones", data.prior),
        pair("menu", h("code", { class: "digest" }, data.menu)),
      ),
    ),
    explain("lane", "epsilon", "cohort"),
  ];
}

/** @param {string} name @param {import("../dom.js").Child | import("../dom.js").Child[]} value */
function pair(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}
