// What is going on, in ten seconds; and what needs a hand.

import { barChart } from "../charts.js";
import { h } from "../dom.js";
import { count, duration, exactly, moment, money, places, plural, tick } from "../format.js";
import { empty, explain, facts, mark, panel, time } from "../parts.js";

/** @typedef {import("../main.js").View} View */

/** @type {View} */
export const overview = {
  path: "overview",
  title: "Overview",
  seenBy: () => true,
  load: (session) => session.get("/ads/console/overview"),
  draw(data, { width }) {
    const { epoch, today, now } = data;
    const large = [
      {
        value: epoch ? count(epoch.menus) : "none",
        label: "menus offered",
        href: "#/menus",
        note: epoch
          ? [
              "epoch ",
              count(epoch.epoch),
              ", until ",
              time(epoch.closes, moment(epoch.closes, now)),
              ` UTC, ${duration(epoch.closes - now)} from now`,
            ]
          : "No epoch is open now.",
      },
      {
        value: money(today.micros),
        label: "charged today",
        hover: exactly(today.micros),
        note: `${today.is_whole ? "" : "at least "}${plural(today.impressions, "impression")} of epochs since midnight UTC`,
      },
      {
        value: `${count(data.campaigns.running)}`,
        label: "campaigns running",
        href: "#/campaigns",
        note: `of ${count(data.campaigns.all)}${data.campaigns.spent ? `, ${count(data.campaigns.spent)} out of money` : ""}`,
      },
      {
        value: money(data.held_micros),
        label: "held",
        hover: exactly(data.held_micros),
        note: data.held_micros ? "shown, and waiting for money" : "nothing waits for money",
      },
    ];
    return [
      facts(large),
      data.alerts &&
        panel(
          "What needs a hand",
          data.alerts.length
            ? alertList(data.alerts)
            : h("p", { class: "calm" }, mark("good", "Nothing needs a hand.")),
        ),
      panel("Lately", lately(data, width)),
      explain("held", "epsilon"),
    ];
  },
};

/** @param {any} data @param {number} width */
function lately(data, width) {
  if (!data.series.length) {
    return empty(
      "No impression was charged yet. Devices report through the proxy; a demonstration has them with ",
      h("code", {}, "tacit serve visit FOLDER"),
      ".",
    );
  }
  const { rows, per } = buckets(data.series, width);
  const digits = places(rows.map((row) => row.micros));
  const half = width >= 720 ? (width - 48) / 2 : width;
  const say = "by when they were shown, UTC";
  return h(
    "div",
    { class: "pair" },
    barChart({
      title: `Charged per ${per}`,
      subtitle: `currency units, ${say}`,
      width: half,
      show: tick,
      bars: rows.map((row) => ({
        label: moment(row.opens, data.now).split(", ").at(-1) ?? "",
        value: row.micros,
        words: `${moment(row.opens, data.now)}: ${money(row.micros, digits)} for ${plural(row.impressions, "impression")}`,
      })),
    }),
    barChart({
      title: `Impressions per ${per}`,
      subtitle: `charged, ${say}`,
      width: half,
      show: (value) => (Number.isInteger(value) ? count(value) : ""),
      bars: rows.map((row) => ({
        label: moment(row.opens, data.now).split(", ").at(-1) ?? "",
        value: row.impressions,
        words: `${moment(row.opens, data.now)}: ${plural(row.impressions, "impression")}`,
      })),
    }),
  );
}

/**
 * Epochs as they are, or hours where there are too many of them to be told apart.
 * @param {any[]} series @param {number} width
 * @returns {{ rows: { opens: number, micros: number, impressions: number }[], per: string }}
 */
export function buckets(series, width) {
  const most = width < 480 ? 16 : 32;
  const first = series[0].opens;
  const last = series.at(-1).opens;
  if (last - first <= 3 * 3600 || series.length <= most / 2) return { rows: series.slice(-most), per: "epoch" };
  /** @type {Map<number, { opens: number, micros: number, impressions: number }>} */
  const hours = new Map();
  for (let opens = last - (last % 3600) - (most - 1) * 3600; opens <= last; opens += 3600) {
    if (opens + 3600 > first) hours.set(opens, { opens, micros: 0, impressions: 0 });
  }
  for (const each of series) {
    const hour = hours.get(each.opens - (each.opens % 3600));
    if (!hour) continue;
    hour.micros += each.micros;
    hour.impressions += each.impressions;
  }
  return { rows: [...hours.values()], per: "hour" };
}

/** A sentence with its commands, which stand between backticks, as code. @param {string} sentence */
function withCode(sentence) {
  return sentence.split("`").map((part, place) => (place % 2 ? h("code", {}, part) : part));
}

/** @param {any[]} alerts */
function alertList(alerts) {
  return h(
    "ul",
    { class: "alerts" },
    alerts.map((alert) =>
      h(
        "li",
        { "data-key": alert.kind + alert.says },
        mark(alert.urgency === "now" ? "bad" : "soon", alert.urgency === "now" ? "Now" : "Soon"),
        h(
          "div",
          {},
          h("p", { class: "says" }, alert.says),
          h(
            "p",
            { class: "do" },
            withCode(alert.do),
            alert.view && [" ", h("a", { href: `#/${alert.view}` }, "See more")],
            alert.runbook &&
              h(
                "span",
                { class: "runbook" },
                "Runbook: ",
                alert.runbook,
                ", in ",
                h("code", {}, `docs/operations.md`),
              ),
          ),
        ),
      ),
    ),
  );
}

/** @type {View} */
export const alerts = {
  path: "alerts",
  title: "Alerts",
  seenBy: (who) => who.sees_all,
  load: (session) => session.get("/ads/console/overview"),
  draw(data) {
    const now = data.alerts.filter((/** @type {any} */ each) => each.urgency === "now");
    const soon = data.alerts.filter((/** @type {any} */ each) => each.urgency !== "now");
    return [
      h(
        "p",
        { class: "lead" },
        "What is broken now, and what will need a hand. Each says what to do first; the runbooks say the rest.",
      ),
      panel("Now", now.length ? alertList(now) : h("p", { class: "calm" }, mark("good", "Nothing is broken."))),
      panel(
        "Soon",
        soon.length ? alertList(soon) : h("p", { class: "calm" }, mark("good", "Nothing is coming up.")),
      ),
      panel(
        "What is watched",
        h(
          "p",
          {},
          "The checks of ",
          h("code", {}, "/healthz"),
          "; whether epochs follow each other; campaigns out of money and what is held; menus out of tokens; rounds that are overdue; cohorts below the size that their menus ask for; ledger lines with less than a tenth left; notices of exchanges that wait. Figures for your own alarms are at ",
          h("code", {}, "/metrics"),
          ".",
        ),
      ),
    ];
  },
};
