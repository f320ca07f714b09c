// The wallet: what choices of this phone have given away in this period, and what happens when it is spent.

import { h, update } from "/console/dom.js";
import { count, duration, epsilon, moment, money, plural } from "/console/format.js";
import { mark, meter, table } from "/console/parts.js";
import { hold, onPress } from "../buttons.js";
import { currency, handset, hasParties, say, whileSeen } from "../handset.js";

/** @typedef {import("../handset.js").Kept} Kept */

const MICROS = 1e6;
const LISTED = 7;

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export function wallet(root, env) {
  if (!hasParties(root, env)) return;
  const device = handset(env);
  const bars = h("div", { class: "bars" });
  const spent = h("p", { class: "verdict", role: "status" });
  const spend = h("button", { type: "button" }, "Spend it");
  const another = /** @type {HTMLButtonElement} */ (h("button", { type: "button" }, "Take a new phone"));
  const list = h("div", { class: "choices" });
  root.append(
    h(
      "div",
      { class: "pair" },
      h(
        "div",
        {},
        bars,
        h("p", { class: "act" }, spend, another),
        spent,
        h(
          "p",
          { class: "source" },
          "“Spend it” shows ads until no private choice can be paid for: real ones, on the phone above. A new phone has a new wallet, which only a demonstration offers.",
        ),
      ),
      list,
    ),
  );
  const draw = () => {
    update(bars, figures(device));
    update(list, choices(device));
    say(spent, words(device));
    hold(spend, device.isSpending || device.consent !== true || device.isSpent);
  };
  env.bus.addEventListener("device", draw);
  draw();
  onPress(spend, () => device.spend());
  another.addEventListener("click", () => device.replace());
  whileSeen(root, async () => {
    await device.settle(); // and what another tab did
  });
}

/** @param {import("../handset.js").Handset} device */
function figures(device) {
  const limits = device.account?.limits ?? device.env.parties.limits;
  const one = device.menu("personal")?.epsilonMicros ?? 0;
  const { localMicros, centralMicros } = device.account ?? { localMicros: 0, centralMicros: 0 };
  return [
    bar("One choice", "by the menu of this place", one, limits.perChoice),
    bar("This period, at most", "what both parties together could learn", localMicros, limits.local),
    bar(
      "This period, shuffled",
      "what the ad server alone could learn, once batches are known: less, where they have hundreds of reports",
      centralMicros,
      limits.central,
    ),
  ];
}

/** @param {string} name @param {string} note @param {number} micros @param {number} limit in epsilon */
function bar(name, note, micros, limit) {
  const used = micros ? epsilon(micros / MICROS) : "0";
  return h(
    "div",
    { class: "bar-row" },
    h("p", {}, h("strong", {}, name), h("span", { class: "number" }, `${used} of ${limit}`)),
    meter(micros / MICROS / limit),
    h("p", { class: "words" }, note),
  );
}

/** @param {import("../handset.js").Handset} device */
function words(device) {
  const { windowSeconds } = device.env.parties.limits;
  const now = Date.now() / 1000;
  const end = (Math.floor(now / windowSeconds) + 1) * windowSeconds;
  const anew = `It begins anew at ${moment(end, now)} UTC, in ${duration(end - now)}.`;
  if (device.consent !== true) return "Nothing is spent without your consent: agree on the phone first.";
  if (device.isSpending) return "Spending…";
  if (device.isSpent)
    return `Spent: from now on the phone shows what everybody here is shown, and reads nothing private. ${anew}`;
  return anew;
}

/** @param {import("../handset.js").Handset} device */
function choices(device) {
  const { kept } = device;
  if (!kept.length)
    return [
      h("p", { class: "empty" }, "Every ad that the phone shows stands here, with what became of its report."),
    ];
  const shown = kept.slice(0, LISTED);
  const rows = table(
    "What this phone chose",
    [
      {
        title: "Ad",
        cell: (/** @type {Kept} */ each) => [
          device.name(each.campaign),
          h("span", { class: "below" }, state(each)),
        ],
      },
      {
        title: "Epsilon",
        number: true,
        cell: (each) => (each.epsilonMicros ? epsilon(each.epsilonMicros / MICROS) : "0"),
      },
      { title: "Price", unit: currency(device.env), number: true, cell: (each) => money(each.priceMicros, 4) },
    ],
    shown,
    (each) => each.id,
  );
  const more =
    kept.length > LISTED ? `The last ${LISTED} of ${count(kept.length)}.` : `${count(kept.length)} in all.`;
  return [rows, h("p", { class: "source" }, `${more} Epsilon 0: what everybody is shown.`)];
}

/** What became of a report. @param {Kept} each */
export function state(each) {
  switch (each.state) {
    case "CHOSEN":
      return mark("idle", "chosen, not shown yet");
    case "SHOWN":
      return mark("soon", "shown, report waits here");
    case "ACKED":
      return mark("soon", "reported, waits for others");
    case "SETTLED":
      if (each.others) return mark("good", `left among ${plural(each.others, "other")}`);
      if (each.cohort && each.cohort > 1) return mark("good", "left with only this phone’s own");
      return mark(
        "good",
        each.epsilonMicros === 0 ? "left" : each.cohort ? "left alone" : "left, unknown among how many",
      );
    default:
      return mark("idle", "closed, never charged");
  }
}
