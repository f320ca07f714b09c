// The ledger: charges as they arrive, each with its reason; what this phone showed against what was charged; and the
// auditor's check.

import { h, update } from "/console/dom.js";
import { count, money, moment, plural } from "/console/format.js";
import { mark, table } from "/console/parts.js";
import { hold, onPress } from "../buttons.js";
import { amount, currency, handset, hasParties, placeName, say, whileSeen } from "../handset.js";

/**
 * @typedef {{ number: number, campaign: number | null, advertiser: string, title: string, price_micros: number, reason: string,
 *   context: string, lane: string, epoch: number, batch: number, held: boolean }} Charge
 * @typedef {{ ads: number, micros: number }} Sum
 */

const LISTED = 6;
const MOST_PAGES = 50;
const LEAST_PHONES = 16;
const MOST_PHONES = 50;
const LEFT = ["SETTLED"];
const WAITING = ["SHOWN", "ACKED"];

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export function ledger(root, env) {
  if (!hasParties(root, env)) return;
  const device = handset(env);
  const sums = h("div", { class: "sums" });
  const verdict = h("p", { class: "verdict", role: "status" });
  const way = h("p", { class: "words way" });
  const list = h("div", { class: "charges" });
  const check = h("button", { type: "button" }, "Run the auditor’s check");
  const others = h("button", { type: "button" }, "Let other phones visit");
  const visited = h(
    "p",
    { class: "words visited", role: "status" },
    "They show ads at the same proxy, some of them at your phone’s place: their reports fill the batches of the menus that are offered now.",
  );
  const found = h("div", { class: "found", role: "status" });
  const trouble = h("p", { class: "trouble", role: "status" });
  root.append(
    h(
      "div",
      { class: "pair" },
      h("div", {}, sums, verdict, way),
      h("div", {}, h("p", { class: "act" }, others), visited, h("p", { class: "act" }, check), found, trouble),
    ),
    list,
  );
  found.append(
    h("p", { class: "muted" }, "The auditor reads what both parties signed, and adds all of it up again."),
  );

  /** @type {Charge[]} */
  const charges = [];
  let held = 0;
  /** Reports that the proxy signed for, of this phone's menus; null while it does not say. @type {number | null} */
  let sent = null;
  // What has left is told against charges and batches that were asked for since.
  const settled = () => device.kept.filter((each) => LEFT.includes(each.state)).length;
  let asked = 0;
  const draw = () => {
    if (asked === settled()) {
      const told = reconcile(device.kept, charges, sent);
      update(sums, [sheet(env, told)]);
      say(verdict, agree(env, told));
    }
    say(way, onTheWay(device));
    update(list, arrived(device, charges, held));
  };
  env.bus.addEventListener("device", draw);
  draw();

  whileSeen(root, async () => {
    if (device.kept.some((each) => WAITING.includes(each.state))) await device.settle();
    const wrong = [];
    const before = settled();
    try {
      sent = await device.sent();
    } catch {
      sent = null;
      wrong.push("The proxy does not answer: is it running?");
    }
    try {
      for (let page = 0; page < MOST_PAGES; page++) {
        const after = charges.length ? `?after=${charges[charges.length - 1].number}` : "";
        const told = await env.get(`/demonstration/ledger${after}`);
        charges.push(...told.charges);
        held = told.held_micros;
        if (!told.more) break;
      }
    } catch (problem) {
      wrong.push(said(problem));
    }
    asked = before;
    say(trouble, wrong.length ? `${wrong.join(" ")} What is known already stays.` : "");
    draw();
  });

  onPress(others, async () => {
    hold(others);
    say(visited, "Other phones are choosing, showing and reporting…");
    try {
      const told = await env.post("/demonstration/visits", company(device));
      say(visited, visitWords(env, told, placeName(device.disclosed)));
    } catch (problem) {
      say(visited, said(problem));
    }
    hold(others, false);
  });

  onPress(check, async () => {
    hold(check);
    found.replaceChildren(h("p", {}, "The check is running…"));
    try {
      found.replaceChildren(...(await verify(env)));
    } catch (problem) {
      found.replaceChildren(h("p", { class: "trouble" }, said(problem)));
    }
    hold(check, false);
  });
}

/** Phones that visit, of which so many stay at this phone's place as fill a batch. @param {import("../handset.js").Handset} device */
function company(device) {
  const cohort = device.menu("personal")?.smallestCohort ?? 0;
  const phones = Math.min(MOST_PHONES, Math.max(LEAST_PHONES, 4 * Math.ceil(cohort / 3)));
  // Three of four agree to private choices.
  const neighbours = Math.min(cohort, 3 * Math.floor(phones / 4));
  return { phones, neighbours, place: device.disclosed.values };
}

/**
 * @param {import("../main.js").Env} env
 * @param {{ phones: number, shown: number, price_micros: number, lanes: Record<string, number>, here: number }} told
 * @param {string} place
 */
function visitWords(env, { phones, shown, price_micros: micros, lanes, here }, place) {
  const ads = `${plural(phones, "other phone")} showed ${plural(shown, "ad")} for ${amount(env, micros)}`;
  const how = `${count(lanes.personal)} chosen privately, ${count(here)} of them in ${place}; ${count(lanes.public)} as everybody is shown`;
  return `${ads}: ${how}. Nobody but they can tell which reports are theirs.`;
}

/** @param {unknown} problem */
function said(problem) {
  return problem instanceof Error ? problem.message : String(problem);
}

/** @param {{ micros: number }[]} all @returns {Sum} */
function add(all) {
  return { ads: all.length, micros: all.reduce((sum, each) => sum + each.micros, 0) };
}

/**
 * This phone's own sums against what was charged of the menus that it chose from. The ad server cannot tell whose
 * reports those are, so that others may be among them.
 * @param {import("../handset.js").Kept[]} kept
 * @param {Charge[]} charges
 * @param {number | null} sent
 */
export function reconcile(kept, charges, sent) {
  const own = kept
    .filter((each) => [...LEFT, ...WAITING].includes(each.state))
    .map((each) => ({ ...each, micros: each.priceMicros }));
  const left = add(own.filter((each) => LEFT.includes(each.state)));
  const shown = add(own);
  const menus = new Set(own.map((each) => `${each.epoch} ${each.lane} ${each.place}`));
  const charged = add(
    charges
      .filter((each) => menus.has(`${each.epoch} ${each.lane} ${each.context}`))
      .map((each) => ({ micros: each.price_micros })),
  );
  return {
    shown,
    left,
    charged,
    sent,
    all: add(charges.map((each) => ({ micros: each.price_micros }))),
  };
}

/** Both sides' sums in a sentence. @param {import("../main.js").Env} env @param {ReturnType<typeof reconcile>} told */
function agree(env, { shown, left, charged, sent }) {
  const ads = (/** @type {Sum} */ sum) => `${plural(sum.ads, "ad")} for ${amount(env, sum.micros)}`;
  if (!shown.ads) return "Nothing was shown yet.";
  const what = `You showed ${ads(shown)}; the ad server charged ${ads(charged)} from the same menus.`;
  if (!left.ads && !charged.ads) return `${what} Nothing has left the proxy yet: all of it is on its way.`;
  // What has left was accepted, hence charged: where fewer charges are here, they were asked for before.
  if (charged.ads !== (sent ?? charged.ads) || charged.ads < left.ads)
    return `${what} The proxy’s count and the charges were not asked for at the same moment: the next look has both.`;
  const waits = shown.ads - left.ads;
  if (charged.ads === left.ads) {
    if (charged.micros !== left.micros)
      return `${what} What has left the proxy is ${ads(left)}: the sums differ, which the auditor’s check looks into.`;
    return waits
      ? `${what} That is what has left the proxy, to the last millionth; the rest is on its way.`
      : `${what} The sums agree to the last millionth.`;
  }
  const rest = { ads: charged.ads - left.ads, micros: charged.micros - left.micros };
  const others = `${ads(rest)} ${rest.ads === 1 ? "is" : "are"} of other phones: nobody can say which charge is whose.`;
  const way = waits ? ` ${plural(waits, "ad")} of yours ${waits === 1 ? "is" : "are"} still on the way.` : "";
  if (!left.ads) return `${what} None of yours has left the proxy, so ${others}${way}`;
  return `${what} ${waits ? `Of yours, ${ads(left)} ${left.ads === 1 ? "has" : "have"} left the proxy` : "All of yours have left the proxy"}; the other ${others}${way}`;
}

/** @param {import("../main.js").Env} env @param {ReturnType<typeof reconcile>} told */
function sheet(env, { shown, left, charged, sent, all }) {
  const rows = [
    { who: "This phone showed", ads: shown.ads, micros: shown.micros },
    { who: "of which have left the proxy", ads: left.ads, micros: left.micros },
    { who: "The proxy signed for, of the same menus", ads: sent, micros: null },
    { who: "The ad server charged, of the same menus", ads: charged.ads, micros: charged.micros },
    { who: "and of all menus, for all phones", ads: all.ads, micros: all.micros },
  ];
  return table(
    "Ads that were shown and charged",
    [
      { title: "Who says so", cell: (each) => each.who },
      { title: "Ads", number: true, cell: (each) => (each.ads === null ? "–" : count(each.ads)) },
      {
        title: "Amount",
        unit: currency(env),
        number: true,
        cell: (each) =>
          each.micros === null ? h("span", { class: "muted" }, "cannot know") : money(each.micros, 4),
      },
    ],
    rows,
    (each) => each.who,
  );
}

/** @param {import("../handset.js").Handset} device */
function onTheWay(device) {
  const waits = device.kept.filter((each) => WAITING.includes(each.state));
  if (!waits.length) return "Nothing is on its way.";
  const now = Date.now() / 1000;
  const cohort = device.menu("personal")?.smallestCohort ?? 1;
  const isOver = (/** @type {import("../handset.js").Kept} */ each) => device.closes(each.epoch) <= now;
  const [over, open] = [waits.filter(isOver), waits.filter((each) => !isOver(each))];
  const leaves = (/** @type {import("../handset.js").Kept[]} */ some) =>
    `${moment(Math.max(...some.map((each) => each.expires)), now)} UTC, with however many there are`;
  const words = [`On the way: ${plural(waits.length, "report")}.`];
  if (open.length)
    words.push(
      `A private one waits at the proxy until ${count(cohort)} of its menu are there to hide among, or leaves at ${leaves(open)}. Other phones help to fill a batch while the menu is offered: until ${clock(Math.min(...open.map((each) => device.closes(each.epoch))))} UTC.`,
    );
  if (over.length) {
    const which = open.length ? plural(over.length, "report") : over.length === 1 ? "It" : "They";
    const [is, leave] = over.length === 1 ? ["is", "leaves"] : ["are", "leave"];
    words.push(
      `${which} ${is} of an epoch that is over, which other phones no longer report for: without ${count(cohort)} of the menu, ${over.length === 1 ? "it" : "they"} ${leave} at ${leaves(over)}.`,
    );
  }
  return words.join(" ");
}

/** @param {number} second */
function clock(second) {
  return Number.isFinite(second) ? new Date(second * 1000).toISOString().slice(11, 19) : "then";
}

/** @param {import("../handset.js").Handset} device @param {Charge[]} charges @param {number} held */
function arrived(device, charges, held) {
  if (!charges.length)
    return [h("p", { class: "empty" }, "Charges stand here as they arrive, each with its reason.")];
  const shown = charges.slice(-LISTED).reverse();
  const rows = table(
    "Charges, the newest first",
    [
      {
        title: "Charged",
        cell: (/** @type {Charge} */ each) => [
          each.campaign === null ? "nothing shown" : each.title || device.name(each.campaign),
          each.campaign !== null &&
            h("span", { class: "below" }, `${each.advertiser}, campaign ${each.campaign}`),
        ],
      },
      {
        title: "Price",
        unit: currency(device.env),
        number: true,
        cell: (each) => money(each.price_micros, 4),
      },
      {
        title: "Reason",
        words: true,
        cell: (each) => [
          each.reason,
          each.held ? " Held: its money has run out." : "",
          h("span", { class: "below" }, `${each.context}, ${each.lane}, batch ${count(each.batch)}`),
        ],
      },
    ],
    shown,
    (each) => each.number,
  );
  const more =
    charges.length > LISTED
      ? `The last ${LISTED} of ${count(charges.length)} charges.`
      : `${plural(charges.length, "charge")} in all.`;
  return [
    rows,
    h("p", { class: "source" }, `${more}${held ? ` Held for want of money: ${amount(device.env, held)}.` : ""}`),
  ];
}

/** Begin a check, or take the one that has just ended, and say what came of it. @param {import("../main.js").Env} env @returns {Promise<HTMLElement[]>} */
async function verify(env) {
  let told = await env.get("/demonstration/verification");
  const wasEarlier = told.again_in > 0;
  if (!told.running && !wasEarlier) told = await env.post("/demonstration/verification", {});
  while (told.running) {
    await new Promise((done) => setTimeout(done, 300));
    told = await env.get("/demonstration/verification");
  }
  const { report } = told;
  if (!report)
    return [h("p", { class: "trouble" }, `The check came to no end: ${told.trouble || "ask again"}.`)];
  const { holds, findings, batches, reports, charged, invoices, found } = report;
  const again = wasEarlier ? ` That was a moment ago; a new check can begin in ${told.again_in} s.` : "";
  const summed = `${plural(batches, "batch", "batches")} with ${plural(reports, "report")} were signed by the proxy, every charge is at the price that its menu said, and they add up to ${plural(charged.impressions, "ad")} for ${amount(env, charged.micros)}${invoices.length ? `, on ${plural(invoices.length, "invoice")}` : ""}.`;
  return [
    h(
      "p",
      { class: "holds" },
      holds ? mark("good", "Everything holds.") : mark("bad", `${plural(found, "thing")} did not hold.`),
    ),
    h("p", {}, holds ? summed : "The ad server’s account differs from what was signed:", again),
    holds
      ? h("span")
      : h(
          "ul",
          {},
          findings.slice(0, 5).map((/** @type {any} */ each) => h("li", {}, words(each))),
        ),
    h(
      "details",
      {},
      h("summary", {}, "What such a check cannot show"),
      h(
        "ul",
        { class: "words" },
        report.not_shown.map((/** @type {string} */ each) => h("li", {}, each)),
      ),
    ),
  ];
}

/** @param {any} finding */
function words(finding) {
  return typeof finding === "string" ? finding : Object.values(finding).join(" ");
}
