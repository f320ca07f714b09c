// What advertisers owe, line by line, and whether it follows from what was signed.

import { h } from "../dom.js";
import { count, exactly, moment, money, places, plural } from "../format.js";
import { amount, empty, mark, panel, table, time } from "../parts.js";

/** @typedef {import("../main.js").View} View */

/** @type {View} */
export const invoices = {
  path: "invoices",
  title: "Invoices",
  seenBy: () => true,
  async load(session, { rest }) {
    if (rest) return session.get(`/ads/console/invoices/${encodeURIComponent(rest)}`);
    const [list, check] = await Promise.all([
      session.get("/ads/console/invoices"),
      session.who?.sees_all ? session.get("/ads/console/verification") : null,
    ]);
    return { ...list, check };
  },
  draw(data, { rest, who }) {
    return rest ? drawInvoice(data) : drawInvoices(data, who);
  },
};

/** @param {any} data @param {import("../session.js").Who} who */
function drawInvoices(data, who) {
  const rows = data.invoices;
  const digits = places(rows.map((/** @type {any} */ row) => row.total_micros));
  return [
    panel(
      "Closed invoices",
      rows.length
        ? table(
            "Invoices",
            [
              {
                title: "invoice",
                cell: (row) => h("a", { href: `#/invoices/${row.number}` }, `No. ${count(row.number)}`),
              },
              ...(who.sees_all
                ? [{ title: "advertiser", cell: (/** @type {any} */ row) => row.advertiser }]
                : []),
              {
                title: "closed",
                unit: "UTC",
                cell: (row) => time(row.closed_at, moment(row.closed_at, data.now)),
              },
              { title: "impressions", number: true, cell: (row) => count(row.impressions) },
              {
                title: "total",
                unit: "currency units",
                number: true,
                cell: (row) => amount(row.total_micros, digits),
              },
            ],
            rows,
            (row) => row.number,
          )
        : empty(
            "No invoice was closed yet: ",
            h("code", {}, "tacit bill invoices SETTINGS --close"),
            " puts every charge that is on none on one per advertiser.",
          ),
    ),
    data.check && panel("Verification", drawCheck(data.check, data.now, who)),
  ];
}

/** @param {any} check @param {number} now @param {import("../session.js").Who} who */
function drawCheck(check, now, who) {
  const isOperator = who.role === "operator";
  const waits = check.running || check.again_in > 0;
  const button =
    isOperator &&
    h(
      "p",
      {},
      h(
        "button",
        { type: "button", "data-action": "verify", disabled: waits },
        check.running ? "Verifying…" : "Verify all invoices",
      ),
    );
  return [
    h(
      "p",
      {},
      "Derives every invoice again from what devices, proxy and ad server signed, as an auditor does, on a fresh export. It runs on this server, so it finds mistakes; for proof, give the export to somebody else (",
      h("code", {}, "tacit bill export"),
      ").",
    ),
    button,
    !isOperator && !check.ended && h("p", { class: "muted" }, "An operator's key can begin one."),
    check.trouble && h("p", { class: "trouble" }, mark("bad", check.trouble)),
    check.report && drawReport(check, now),
  ];
}

/** @param {any} check @param {number} now */
function drawReport(check, now) {
  const { report } = check;
  return h(
    "div",
    { class: "report" },
    h(
      "p",
      { class: "says" },
      report.holds
        ? mark("good", "Everything holds.")
        : mark("bad", `${plural(report.found, "finding")}: this does not hold.`),
      " As of ",
      time(check.began, moment(check.began, now)),
      " UTC.",
    ),
    h(
      "ul",
      { class: "figures" },
      h(
        "li",
        {},
        `${plural(report.reports, "report")} in ${plural(report.batches, "batch", "batches")} of ${plural(report.epochs, "epoch")}`,
      ),
      h(
        "li",
        {},
        `${plural(report.charged.impressions, "impression")} proven and charged, `,
        h("span", { title: exactly(report.charged.micros) }, money(report.charged.micros)),
        " currency units",
      ),
      h(
        "li",
        {},
        `${plural(report.invoices.length, "invoice")} derived again, ${report.invoices.every((/** @type {any} */ each) => each.stated_micros === each.proven_micros) ? "each to the micro" : "not each to the same sum"}`,
      ),
    ),
    report.findings.length > 0 &&
      h(
        "ul",
        { class: "findings" },
        report.findings
          .slice(0, 20)
          .map((/** @type {any} */ each) => h("li", {}, `${each.kind}: ${each.words} (${each.file})`)),
      ),
    h(
      "details",
      {},
      h("summary", {}, "What no export can show"),
      h(
        "ul",
        { class: "figures" },
        report.not_shown.map((/** @type {string} */ each) => h("li", {}, each)),
      ),
    ),
  );
}

/** @param {any} data */
function drawInvoice(data) {
  const digits = places(
    data.items.flatMap((/** @type {any} */ each) => [each.price_micros, each.total_micros]),
  );
  return [
    h("p", { class: "back" }, h("a", { href: "#/invoices" }, "All invoices")),
    h(
      "p",
      { class: "lead" },
      data.advertiser,
      ", closed ",
      time(data.closed_at, moment(data.closed_at, data.now)),
      " UTC: ",
      plural(data.impressions, "impression"),
      ", ",
      h("strong", { title: exactly(data.total_micros) }, money(data.total_micros)),
      " currency units",
    ),
    panel(
      "Lines",
      table(
        "Lines",
        [
          { title: "context", cell: (row) => row.context },
          { title: "epoch", number: true, cell: (row) => count(row.epoch) },
          { title: "campaign", number: true, cell: (row) => count(row.campaign) },
          { title: "lane", cell: (row) => row.lane },
          { title: "shown", unit: "rank of entries", number: true, cell: (row) => row.shown },
          {
            title: "price",
            unit: "currency units",
            number: true,
            cell: (row) => amount(row.price_micros, digits),
          },
          { title: "impressions", number: true, cell: (row) => count(row.impressions) },
          {
            title: "total",
            unit: "currency units",
            number: true,
            cell: (row) => amount(row.total_micros, digits),
          },
          { title: "why this price", words: true, cell: (row) => row.reason },
        ],
        data.items,
      ),
      data.all > data.items.length &&
        h(
          "p",
          { class: "muted" },
          `The ${count(data.items.length)} lines that cost most, of ${count(data.all)}.`,
        ),
    ),
  ];
}
