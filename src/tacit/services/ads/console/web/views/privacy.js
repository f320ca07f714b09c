// What hides people, and what was spent of their privacy: cohorts, ledger lines, rounds, versions.

import { dotChart } from "../charts.js";
import { h } from "../dom.js";
import { count, duration, epsilon, epsilonLeft, moment, percent, plural } from "../format.js";
import { empty, explain, mark, meter, panel, table, time } from "../parts.js";

/** @typedef {import("../main.js").View} View */

/** @type {View} */
export const cohorts = {
  path: "cohorts",
  title: "Cohorts",
  seenBy: (who) => who.sees_all,
  load: (session) => session.get("/ads/console/cohorts"),
  draw(data, { width }) {
    const rows = data.cohorts;
    if (!rows.length) {
      return [
        empty(
          "No batch has come yet. Reports leave the proxy when their menu has enough of them, or when its epoch expires.",
        ),
        explain("cohort"),
      ];
    }
    const personal = rows.filter((/** @type {any} */ row) => row.lane === "personal");
    const small = personal.filter((/** @type {any} */ row) => row.is_small).length;
    const epochs = [...new Set(rows.map((/** @type {any} */ row) => row.epoch))]
      .sort((a, b) => a - b)
      .slice(width < 480 ? -8 : -16);
    const opens = new Map(rows.map((/** @type {any} */ row) => [row.epoch, row.opens]));
    return [
      h(
        "p",
        { class: "lead" },
        `${plural(personal.length, "personal cohort")} in the latest batches, ${small ? `${count(small)} smaller than asked for` : "none smaller than asked for"}.`,
      ),
      panel(
        "Sizes",
        dotChart({
          title: "Reports that left together",
          subtitle: "by epoch, UTC, on a log axis; filled circles: personal lane, hollow squares: public lane",
          labels: epochs.map((each) =>
            opens.get(each) === null ? "" : (moment(opens.get(each), data.now).split(", ").at(-1) ?? ""),
          ),
          dots: rows
            .filter((/** @type {any} */ row) => epochs.includes(row.epoch))
            .map((/** @type {any} */ row) => ({
              place: epochs.indexOf(row.epoch),
              value: row.smallest,
              filled: row.lane === "personal",
              words: `${row.context ?? "a menu"}, ${row.lane ?? ""}, epoch ${count(row.epoch)}: ${plural(row.smallest, "report")}`,
            })),
          width,
          wanted: Math.max(0, ...personal.map((/** @type {any} */ row) => row.wanted)) || null,
        }),
      ),
      panel(
        "By menu and epoch",
        table(
          "Cohorts",
          [
            {
              title: "context",
              cell: (row) => h("a", { href: `#/menus/${row.menu}` }, row.context ?? "a menu"),
            },
            { title: "lane", cell: (row) => row.lane },
            {
              title: "epoch",
              cell: (row) =>
                row.opens === null ? count(row.epoch) : time(row.opens, moment(row.opens, data.now)),
              hover: (row) => `epoch ${count(row.epoch)}`,
            },
            { title: "batches", number: true, cell: (row) => count(row.sizes.length) },
            {
              title: "smallest",
              unit: "reports",
              number: true,
              cell: (row) =>
                row.is_small
                  ? h("strong", { title: `asked for: ${count(row.wanted)}` }, mark("soon", count(row.smallest)))
                  : count(row.smallest),
            },
            { title: "asked for", unit: "reports", number: true, cell: (row) => count(row.wanted) },
            { title: "epsilon", unit: "to both parties", number: true, cell: (row) => epsilon(row.epsilon) },
            { title: "epsilon", unit: "to this server", number: true, cell: (row) => epsilon(row.central) },
          ],
          rows,
          (row) => `${row.epoch} ${row.menu}`,
        ),
        h(
          "p",
          { class: "muted" },
          `Epsilon of one choice: to proxy and ad server together, who could link it to a device, and to this ad server alone, who sees it within its cohort (delta ${data.delta.toExponential()}). All choices of a device add up on the device.`,
        ),
      ),
      explain("cohort", "epsilon", "lane"),
    ];
  },
};

const NEARLY_SPENT = 0.1; // of a line's limit that is left, as alerts have it

/** @type {View} */
export const ledger = {
  path: "ledger",
  title: "Ledger",
  seenBy: (who) => who.sees_all,
  load: (session) => session.get("/ads/console/ledger"),
  draw(data) {
    if (!data.lines.length) {
      return [
        empty(
          "The ledger of this server has no line yet. Statistics can be released only from a line that was granted: ",
          h("code", {}, "tacit ledger grant"),
          ".",
        ),
        explain("epsilon"),
      ];
    }
    return [
      h(
        "p",
        { class: "lead" },
        "What may be released about people in all, what was, and what is left, by line. A release is paid before it is made.",
      ),
      table(
        "Ledger lines",
        [
          { title: "scope", cell: (row) => row.scope },
          {
            title: "left",
            unit: "epsilon",
            number: true,
            cell: (row) =>
              h(
                "strong",
                {},
                row.left_nanos < NEARLY_SPENT * row.limit_nanos
                  ? mark("soon", epsilonLeft(row.left_nanos))
                  : epsilonLeft(row.left_nanos),
              ),
          },
          {
            title: "used",
            unit: "of the limit",
            number: true,
            cell: (row) =>
              h(
                "span",
                { class: "gauge" },
                meter(row.spent_nanos / row.limit_nanos, row.reserved_nanos / row.limit_nanos),
                h("span", {}, percent((row.spent_nanos + row.reserved_nanos) / row.limit_nanos)),
              ),
          },
          { title: "spent", unit: "epsilon", number: true, cell: (row) => epsilon(row.spent_nanos / 1e9) },
          {
            title: "reserved",
            unit: "epsilon",
            number: true,
            cell: (row) => epsilon(row.reserved_nanos / 1e9),
          },
          { title: "limit", unit: "epsilon", number: true, cell: (row) => epsilonLeft(row.limit_nanos) },
          {
            title: "left",
            unit: "delta",
            number: true,
            cell: (row) => (row.left_delta ? row.left_delta.toExponential(1) : "0"),
          },
          { title: "unit", unit: "who is protected", cell: (row) => row.unit },
          { title: "relation", unit: "neighbours", cell: (row) => row.relation },
          { title: "window", cell: (row) => (row.window === null ? "all time" : count(row.window)) },
        ],
        data.lines,
        (row) => `${row.scope} ${row.unit} ${row.relation} ${row.window}`,
      ),
      explain("epsilon"),
    ];
  },
};

const LATE_SECONDS = 600;
/** @type {Record<string, ["good" | "idle" | "bad", string]>} */
const PHASES = {
  open: ["good", "open"],
  closed: ["idle", "closed, being settled"],
  agreed: ["idle", "agreed on"],
  released: ["good", "released"],
  "too-few": ["bad", "too few reports"],
  stopped: ["idle", "given up"],
};

/** @type {View} */
export const rounds = {
  path: "rounds",
  title: "Rounds",
  seenBy: (who) => who.sees_all,
  load: (session) => session.get("/ads/console/rounds"),
  draw(data) {
    if (!data.rounds.length) {
      return [
        empty(
          "No round of statistics was opened yet. With a table ",
          h("code", {}, "[statistics]"),
          " in its settings this server opens them by schedule; ",
          h("code", {}, "tacit serve open SETTINGS ROUND"),
          " opens one now.",
        ),
        explain("epsilon"),
      ];
    }
    return [
      h(
        "p",
        { class: "lead" },
        "Rounds in which devices count together: nobody sees a device's counts, and only noisy sums come out.",
      ),
      table(
        "Rounds",
        [
          {
            title: "round",
            cell: (row) => (row.level ? `${row.task}, level ${row.level}` : row.task),
            hover: (row) => row.digest,
          },
          { title: "phase", unit: "and what it waits for", cell: (row) => phase(row, data.now) },
          { title: "closes", unit: "UTC", cell: (row) => time(row.closes, moment(row.closes, data.now)) },
          { title: "reports", unit: "accepted here", number: true, cell: (row) => count(row.accepted) },
          { title: "needed", unit: "reports", number: true, cell: (row) => count(row.smallest_batch) },
          { title: "enrolled", unit: "devices", number: true, cell: (row) => count(row.parties) },
          { title: "epsilon", unit: "of the run", number: true, cell: (row) => epsilon(row.epsilon) },
          { title: "paid from", unit: "scope", cell: (row) => row.scope },
        ],
        data.rounds,
        (row) => row.digest,
      ),
      explain("epsilon"),
    ];
  },
};

/** @param {any} row @param {number} now */
function phase(row, now) {
  return [phaseMark(row, now), row.needs && h("small", { class: "below" }, row.needs)];
}

/** @param {any} row @param {number} now */
function phaseMark(row, now) {
  const isOver = now >= row.closes; // the server keeps it open until both parties agree on its reports
  const [kind, words] = PHASES[row.phase === "open" && isOver ? "closed" : row.phase] ?? ["idle", row.phase];
  if (!row.is_settled && now > row.closes + LATE_SECONDS)
    return mark("bad", `closed, ${duration(now - row.closes)} overdue`);
  return mark(kind, words);
}

/** @type {Record<string, string>} */
const KINDS = {
  model: "click model",
  "conversion-model": "conversion model",
  "conversion-statistics": "conversion statistics",
};

/** @type {View} */
export const versions = {
  path: "models",
  title: "Models",
  seenBy: (who) => who.sees_all,
  load: (session) => session.get("/ads/console/versions"),
  draw(data) {
    if (!data.versions.length) {
      return [
        empty(
          "No statistics and no model is kept yet: rates are those of the market's file. Released rounds and trained models become versions here, and one of a kind is in use.",
        ),
      ];
    }
    return [
      h(
        "p",
        { class: "lead" },
        "Statistics and models that rates in menus are made of. One of a kind is in use; another that is put in use counts from the next epoch on.",
      ),
      table(
        "Versions",
        [
          { title: "version", cell: (row) => row.name },
          { title: "state", cell: (row) => (row.in_use ? mark("good", "in use") : mark("idle", "kept")) },
          { title: "kind", cell: (row) => KINDS[row.kind] ?? row.kind },
          { title: "number", number: true, cell: (row) => count(row.number) },
          { title: "added", unit: "UTC", cell: (row) => time(row.made, moment(row.made, data.now)) },
          {
            title: "made of",
            cell: (row) =>
              row.reports === null ? `${row.method ?? "other"} training` : plural(row.reports, "report"),
          },
          {
            title: "epsilon",
            unit: "of its statement",
            number: true,
            cell: (row) =>
              row.epsilon === null ? h("span", { class: "muted" }, "none") : epsilon(row.epsilon),
            hover: (row) => (row.unit ? `delta ${row.delta}, per ${row.unit}` : "no privacy statement"),
          },
          { title: "size", unit: "KB", number: true, cell: (row) => count(Math.ceil(row.size / 1000)) },
          { title: "digest", cell: (row) => h("code", { title: row.digest }, row.digest.slice(0, 12)) },
        ],
        data.versions,
        (row) => row.number,
      ),
      h(
        "p",
        { class: "muted" },
        "To roll out, or back: ",
        h("code", {}, "tacit ads statistics use NUMBER"),
        ", ",
        h("code", {}, "tacit ads models use NUMBER"),
        ".",
      ),
      explain("epsilon"),
    ];
  },
};
