// The phone: it asks before it reads any taste, shows ads as a phone would, and beside it stands what itself, the
// proxy and the ad server know of that, from each one's own record.

import { h, update } from "/console/dom.js";
import { count, stamp } from "/console/format.js";
import { hold, onPress } from "../buttons.js";
import { LIKINGS, amount, handset, hasParties, placeName, say, whileSeen } from "../handset.js";
import { rehearsal } from "./rehearsing.js";

/** @typedef {{ at: number, kind: string, bytes: number, fields: any, hex: string }} Message as a party saw it */

const TASTES = ["less than most", "as most do", "twice as much", "four times as much"];
const SHOWN = 12; // messages of a party
const ATTRIBUTES = ["City", "Topic"];

/** @param {HTMLElement} root @param {import("../main.js").Env} env */
export function phone(root, env) {
  if (!hasParties(root, env)) return;
  const device = handset(env);
  const slot = h("div", { class: "slot", "aria-live": "polite" });
  const why = h("p", { class: "why" });
  const place = h("p", { class: "screen-title" });
  const ask = h("div", { class: "ask" });
  const next = h("button", { type: "button", class: "main" }, "Next ad");
  const trouble = h("p", { class: "trouble", role: "status" });
  const known = h("div", { class: "known" });
  const profile = form(device);
  const proxy = h("ol", { class: "seen", tabindex: 0, "aria-label": "Messages that the proxy saw" });
  const server = h("ol", { class: "seen", tabindex: 0, "aria-label": "Messages that the ad server saw" });
  device.slot = slot;

  root.append(
    h(
      "div",
      { class: "handset" },
      h(
        "div",
        { class: "hand" },
        h(
          "div",
          { class: "phone", role: "group", "aria-label": "The phone's screen" },
          place,
          h("div", { class: "lines", "aria-hidden": "true" }, h("i"), h("i"), h("i")),
          slot,
          why,
          h("div", { class: "lines", "aria-hidden": "true" }, h("i"), h("i")),
          ask,
        ),
        h("p", { class: "act" }, next),
        trouble,
      ),
      h(
        "div",
        { class: "sides" },
        column(
          "What the device knows",
          "Your tastes, and where exactly you are: that stays here.",
          profile,
          known,
        ),
        column("What the proxy saw", "Where messages come from, and of which menu: roughly where you are. Not which ad.", proxy),
        column("What the ad server saw", "What is asked and shown, not by whom.", server),
      ),
    ),
    rehearsal(env, device),
  );

  const draw = () => {
    place.textContent = `Today in ${device.context
      .join(": ")
      .toLowerCase()
      .replace(/^\w/, (first) => first.toUpperCase())}`;
    if (!device.shown && !slot.childNodes.length) slot.append(h("p", { class: "muted" }, waiting(device)));
    update(why, [h("span", {}, reason(device))]);
    const isAnswered = ask.contains(document.activeElement);
    update(ask, question(device.consent));
    if (isAnswered && !ask.contains(document.activeElement)) ask.querySelector("button")?.focus({ preventScroll: true });
    update(known, knows(device));
    say(trouble, device.trouble);
    hold(next, device.isSpending);
  };
  env.bus.addEventListener("device", draw);
  draw();

  onPress(next, () => device.next());
  ask.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    if (button) device.setConsent(button.value === "yes");
  });
  profile.addEventListener("change", () => device.setProfile(read(profile, device)));
  profile.addEventListener("input", (event) => {
    if (event.target instanceof HTMLInputElement) sayTaste(event.target);
  });

  let began = false;
  // What is chosen privately is spent: only somebody who asks for it gets another.
  const isFree = () =>
    !device.shown && (device.consent !== true || device.kept.some((each) => each.state === "CHOSEN"));
  whileSeen(root, async () => {
    if (!began) {
      began = await device.attempt(async () => {}, false);
      if (began && isFree()) await device.next();
    }
    const answers = await Promise.all([
      look(env, `${env.parties.proxy.url}/demonstration/seen`, proxy, proxyMessage),
      look(env, "/demonstration/seen", server, (message) => serverMessage(env, message)),
    ]);
    if (!device.isAway || answers.includes(false)) return;
    if (isFree()) await device.next();
    else device.back();
  });
}

/** @param {string} title @param {string} words @param {...HTMLElement} children */
function column(title, words, ...children) {
  return h("section", { class: "side" }, h("h3", {}, title), h("p", { class: "words" }, words), children);
}

/** @param {import("../handset.js").Handset} device */
function waiting(device) {
  return device.consent ? "Press “Next ad”: one private choice." : "An ad comes here.";
}

/** Why this ad, in one line. @param {import("../handset.js").Handset} device */
function reason(device) {
  const { shown } = device;
  if (!shown) return " ";
  const here = placeName(shown.disclosed);
  if (shown.lane === "personal") {
    const epsilon = shown.epsilonMicros / 1e6;
    if (!epsilon) return `What everybody in ${here} is shown: epsilon 0.`;
    return `Chosen on this phone, with chance mixed in: epsilon ${epsilon}.${shown.again ? " Drawn before, and only shown now: the same one." : ""}`;
  }
  const signal = /** @type {any} */ (navigator).globalPrivacyControl
    ? " Your browser says no to personal ads."
    : "";
  const why = !device.consent ? "" : device.isSpent ? " This period’s epsilon is spent." : signal;
  return `What everybody in ${here} is shown: epsilon 0.${why}`;
}

/** @param {boolean | null} consent */
function question(consent) {
  const words =
    consent === null
      ? "May this phone choose ads by your tastes? They stay here, and each choice gives away at most a stated epsilon."
      : consent
        ? "This phone chooses ads by your tastes, which stay here."
        : "This phone shows what everybody here is shown.";
  const yes = h(
    "button",
    { type: "button", value: "yes", "data-key": "yes" },
    consent === null ? "Yes, privately" : "Allow it",
  );
  const no = h(
    "button",
    { type: "button", value: "no", "data-key": "no" },
    consent === null ? "No" : "Take it back",
  );
  return [h("p", {}, words), h("p", { class: "answers" }, consent === null ? [yes, no] : consent ? no : yes)];
}

/** Where somebody is, and what they like. @param {import("../handset.js").Handset} device */
function form(device) {
  return h(
    "form",
    { class: "profile" },
    h(
      "div",
      { class: "where" },
      device.choices.map((values, at) =>
        h(
          "p",
          {},
          h("label", { for: `phone-place-${at}` }, ATTRIBUTES[at] ?? `Place ${at + 1}`),
          h(
            "select",
            { id: `phone-place-${at}` },
            values.map((/** @type {string} */ each) =>
              h("option", { selected: each === device.context[at] }, each),
            ),
          ),
        ),
      ),
    ),
    [1, 2, 3, 4].map((campaign) => {
      const step = device.liking[campaign] ?? 1;
      return h(
        "p",
        { class: "taste" },
        h("label", { for: `phone-taste-${campaign}` }, device.name(campaign)),
        h("output", { for: `phone-taste-${campaign}` }, times(step)),
        h("input", {
          id: `phone-taste-${campaign}`,
          type: "range",
          min: 0,
          max: LIKINGS.length - 1,
          step: 1,
          value: step,
          "data-campaign": campaign,
          "aria-valuetext": `liked ${TASTES[step]}`,
        }),
      );
    }),
  );
}

/** @param {number} step */
function times(step) {
  return `${LIKINGS[step] === 0.5 ? "½" : LIKINGS[step]}×`;
}

/** @param {HTMLInputElement} input */
function sayTaste(input) {
  const step = Number(input.value);
  input.setAttribute("aria-valuetext", `liked ${TASTES[step]}`);
  const shown = input.parentElement?.querySelector("output");
  if (shown) shown.textContent = times(step);
}

/** @param {HTMLElement} form @param {import("../handset.js").Handset} device */
function read(form, device) {
  const context = [...form.querySelectorAll("select")].map((each) => each.value);
  const liking = { ...device.liking };
  for (const each of form.querySelectorAll("input")) liking[Number(each.dataset.campaign)] = Number(each.value);
  return { context, liking };
}

/** What only the device knows of this choice. @param {import("../handset.js").Handset} device */
function knows(device) {
  const { shown } = device;
  const menu = device.menu("personal");
  const told = h(
    "p",
    { class: "words" },
    `Exactly: ${device.context.join(" · ")}. Told, sealed: ${placeName(device.disclosed)}.`,
  );
  const chances = shown?.chances ?? null;
  const fits = chances !== null && menu !== undefined && menu.entries.length === chances.length;
  const scores = menu
    ? menu.entries.map((each) => each.bidMicros * each.rate * LIKINGS[device.liking[each.campaign] ?? 1])
    : [];
  const best = Math.max(...scores, 1);
  const rows = [0, 1, 2, 3].map((at) => {
    const entry = fits ? menu?.entries[at] : undefined;
    return h(
      "tr",
      { class: entry && entry.campaign === shown?.campaign ? "chosen" : null },
      h("th", { scope: "row" }, entry ? device.name(entry.campaign) : "–"),
      h("td", { class: "number" }, entry ? count(Math.round((100 * scores[at]) / best)) : "–"),
      h("td", { class: "number" }, entry && chances ? percent3(chances[at]) : "–"),
    );
  });
  return [
    told,
    h(
      "table",
      { class: "tight" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Candidate"),
          h("th", { scope: "col", class: "number" }, "Score", h("small", {}, "best = 100")),
          h("th", { scope: "col", class: "number" }, "Chance", h("small", {}, "exactly")),
        ),
      ),
      h("tbody", {}, rows),
    ),
    h("p", { class: "words chances" }, lawWords(device, fits ? /** @type {number[]} */ (chances) : null)),
  ];
}

/** @param {number} share */
function percent3(share) {
  return share === 0 ? "0%" : `${(100 * share).toFixed(1)}%`;
}

/** @param {import("../handset.js").Handset} device @param {number[] | null} chances */
function lawWords(device, chances) {
  if (!chances) {
    if (device.consent && device.isSpent)
      return "The wallet is spent, so nothing of this is read: there are no chances.";
    return device.consent
      ? "The next private choice has its exact chances here."
      : "Without your consent nothing of this is read: there are no scores, and no chances.";
  }
  const possible = chances.filter((each) => each > 0);
  const ratio = (Math.max(...possible) / Math.min(...possible)).toFixed(2);
  const none = chances.length - possible.length;
  return `Other tastes would move these chances by at most ${ratio} times: that is e to the power of epsilon. In bold: what was drawn.${none ? ` The last ${none === 1 ? "is" : `${none} are`} never shown here, whatever anybody likes: this menu’s law leaves ${none === 1 ? "it" : "them"} out.` : ""}`;
}

/** @param {import("../main.js").Env} env @param {string} path @param {Element} list @param {(message: Message) => { words: string, facts: [string, string][] }} tell */
async function look(env, path, list, tell) {
  try {
    /** @type {Message[]} */
    const messages = await env.get(path);
    const shown = messages.slice(-SHOWN).reverse();
    update(
      list,
      shown.length ? shown.map((each) => row(each, tell(each))) : [h("li", { class: "muted" }, "Nothing yet.")],
    );
    return true;
  } catch (problem) {
    const words = problem instanceof Error ? problem.message : String(problem);
    update(list, [
      h("li", { class: "muted" }, `${words} What it sees next stands here again when it is back.`),
    ]);
    return false;
  }
}

/** @param {Message} message @param {{ words: string, facts: [string, string][] }} told */
function row(message, { words, facts }) {
  const time = h(
    "time",
    { datetime: new Date(message.at * 1000).toISOString(), title: stamp(message.at) },
    new Date(message.at * 1000).toISOString().slice(11, 19),
  );
  return h(
    "li",
    { "data-key": `${message.at} ${message.kind} ${message.hex.slice(0, 32)}` },
    h(
      "p",
      { class: "line" },
      h("strong", {}, message.kind),
      h("span", {}, `${count(message.bytes)} bytes`),
      time,
    ),
    h("p", {}, words),
    h(
      "dl",
      {},
      facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("code", {}, value)))),
      h("div", {}, h("dt", {}, "bytes"), h("dd", {}, h("code", {}, brief(message.hex, 24)))),
    ),
  );
}

/** @param {string} hex @param {number} [digits] */
function brief(hex, digits = 12) {
  return hex.length > digits ? `${hex.slice(0, digits)}…` : hex;
}

/** @param {Message} message @returns {{ words: string, facts: [string, string][] }} */
function proxyMessage({ kind, fields }) {
  switch (kind) {
    case "head":
      return { words: "Somebody asks what both parties signed for now.", facts: [["from", fields.address]] };
    case "request":
      return {
        words: "Something sealed for the ad server, and its answer, sealed too.",
        facts: [
          ["from", fields.address],
          ["answer", `${count(fields.answer_length)} bytes`],
        ],
      };
    case "report":
      return {
        words: "An ad of this menu was shown. Which one is sealed.",
        facts: [
          ["from", fields.address],
          ["menu", `${brief(fields.menu)} (${fields.context ?? "unknown"})`],
          ["nonce", brief(fields.nonce)],
        ],
      };
    case "pack":
      return {
        words: "Somebody fetches all ads of this menu, before one is chosen.",
        facts: [
          ["from", fields.address],
          ["menu", `${brief(fields.menu)} (${fields.context ?? "unknown"})`],
        ],
      };
    case "statement":
      return {
        words: `Somebody asks among how many a report left${fields.known ? "" : ": it waits"}.${often(fields.times)}`,
        facts: [
          ["from", fields.address],
          ["nonce", brief(fields.nonce)],
        ],
      };
    case "sizes":
      return {
        words: `Somebody asks how large this epoch’s batches were.${often(fields.times)}`,
        facts: [
          ["from", fields.address],
          ["epoch", String(fields.epoch)],
        ],
      };
    default:
      return {
        words: `${fields.reports === 1 ? "One report goes" : `${count(fields.reports)} reports of one menu go, shuffled,`} to the ad server.`,
        facts: [["menu", `${brief(fields.menu)} (${fields.context ?? "unknown"})`]],
      };
  }
}

/** @param {number} times */
function often(times) {
  return times > 1 ? ` Asked ${count(times)} times.` : "";
}

/** @param {import("../main.js").Env} env @param {Message} message @returns {{ words: string, facts: [string, string][] }} */
function serverMessage(env, { kind, fields }) {
  if (kind === "request") {
    const words = fields.tokens
      ? `Somebody in ${fields.context} wants ${count(fields.tokens)} blinded tokens signed, unseen.`
      : `Somebody in ${fields.context} asks for the ${fields.lane} menu.`;
    return {
      words,
      facts: [
        ["context", fields.context],
        ["lane", fields.lane],
      ],
    };
  }
  if (kind === "batch") {
    /** @type {{ entry: number, campaign: number | null, price_micros: number, verdict: string }[]} */
    const entries = fields.entries;
    const told = entries
      .slice(0, 8)
      .map((each) => `${each.campaign ?? "nothing"} for ${amount(env, each.price_micros)}`);
    return {
      words: `${fields.reports === 1 ? "One report" : `${count(fields.reports)} reports, in no order`}: what was shown, and its price.`,
      facts: [
        ["menu", `${brief(fields.menu)} (${fields.context})`],
        ["shown", told.join("; ") + (entries.length > 8 ? "; …" : "")],
      ],
    };
  }
  return { words: "A message.", facts: [] };
}
