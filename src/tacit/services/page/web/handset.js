// The phone's own device: opened once for all panels, with what the person said, and its journal as it stands. The
// device is the real client in its worker; the profile is made up, and stays in this browser.

import { h } from "/console/dom.js";
import { money } from "/console/format.js";

/**
 * @typedef {{ campaign: number, priceMicros: number, bidMicros: number, rate: number }} Entry
 * @typedef {{ levels: number[], values: string[] }} Place
 * @typedef {{ id: Uint8Array, epoch: number, lane: string, node: Place, mechanism: string, epsilonMicros: number,
 *   smallestCohort: number, entries: Entry[] }} Menu
 * @typedef {{ id: string, state: string, epoch: number, expires: number, lane: string, place: string,
 *   campaign: number | null, priceMicros: number, epsilonMicros: number, cohort: number | undefined, menu: string,
 *   others: number }} Kept an impression as the journal has it, and how many of its batch are not this phone's own
 * @typedef {{ campaign: number | null, priceMicros: number, lane: string, epsilonMicros: number, disclosed: Place,
 *   epoch: number, creatives: { title: string }[], chances: number[] | null, again: boolean }} Shown
 */

const STORED = "tacit-page";
const SHOWABLE = ["CHOSEN", "SHOWN", "ACKED", "SETTLED", "CLOSED"];
const SENT = ["SHOWN", "ACKED", "SETTLED"];
const STATEMENT_BYTES = 121;
const LATE_SECONDS = 300; // after which no batch of an epoch is still on its way
const REQUESTS = 1000; // that a public rate counts as, beside the made-up history
const MOST_HISTORY = 20_000;
const NAMES = {
  1: "Fresh on Mondays",
  2: "Shoes for the long run",
  3: "A bike for the city",
  4: "First flush is here",
};
/** How much more often than most people. */
export const LIKINGS = [0.5, 1, 2, 4];
export const POLL_MS = 2000;

/** What a place is called. @param {Place} place */
export function placeName(place) {
  return place.values.join(" · ");
}

/** What amounts are in: the market's currency. @param {import("./main.js").Env} env @returns {string} */
export function currency(env) {
  return env.parties?.currency ?? "currency units";
}

/** An amount in a sentence. @param {import("./main.js").Env} env @param {number} micros */
export function amount(env, micros) {
  return `${money(micros, 4)} ${currency(env)}`;
}

/** The one device of the page. @param {import("./main.js").Env} env @returns {Handset} */
export function handset(env) {
  env.device ??= new Handset(env);
  return env.device;
}

/** Whether both parties are known; where not, one line says so. @param {HTMLElement} root @param {import("./main.js").Env} env */
export function hasParties(root, env) {
  if (env.parties?.hierarchy) return true;
  const words =
    "This panel needs to know both parties, and the ad server did not say who they are: load the page again.";
  root.append(h("p", { class: "trouble", role: "status" }, words));
  return false;
}

/** Say something, and nothing where it was said already: who listens hears it once. @param {Element} element @param {string} words */
export function say(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/** Call `act` every two seconds while an element is looked at, and at no other time. @param {Element} element @param {() => Promise<void>} act */
export function whileSeen(element, act) {
  let seen = false;
  /** @type {number | undefined} */
  let timer;
  let running = false;
  const turn = async () => {
    clearTimeout(timer);
    if (running || !seen || document.hidden) return;
    running = true;
    await act();
    running = false;
    if (seen && !document.hidden) timer = setTimeout(turn, POLL_MS);
  };
  new IntersectionObserver((changes) => {
    seen = changes[changes.length - 1].isIntersecting;
    turn();
  }).observe(element);
  document.addEventListener("visibilitychange", turn);
  return turn;
}

export class Handset {
  /** @type {any} the client's page side */
  #tacit;
  /** @type {any} the account as the journal has it */
  #account;
  /** @type {Promise<void> | undefined} */
  #opening;
  /** @type {Map<string, any>} impressions by key, also those of a journal that was left with consent */
  #rows = new Map();
  /** @type {any} what the client reads messages by */
  #code;
  #busy = Promise.resolve();
  /** @type {Map<string, Menu>} */
  #menus = new Map();
  /** @type {Map<number, string>} */
  #names = new Map(Object.entries(NAMES).map(([number, name]) => [Number(number), name]));
  #packs = new Set();
  #order = new Map();
  /** @type {Map<string, string>} an impression's batch, where several may have been in the same one */
  #batches = new Map();
  /** @type {Map<string, { menu: string, reports: number }>} all batches of epochs that were asked for */
  #signed = new Map();
  #over = new Set();
  /** @type {Map<number, number>} when menus of an epoch are no longer offered */
  #closes = new Map();

  /** @param {import("./main.js").Env} env */
  constructor(env) {
    this.env = env;
    const said = restore();
    /** @type {boolean | null} null: the person was not asked yet */
    this.consent = said.consent ?? null;
    this.number = said.number ?? 1;
    const { attributes } = env.parties?.hierarchy ?? { attributes: [] };
    /** @type {string[][]} exact values, by attribute */
    this.choices = attributes.map(leaves);
    /** @type {string[]} */
    this.context = this.choices.map((each, at) =>
      each.includes(said.context?.[at]) ? said.context[at] : each[0],
    );
    /** @type {Record<number, number>} by campaign, a place in LIKINGS */
    this.liking = said.liking ?? { 1: 1, 2: 3, 3: 1, 4: 1 };
    /** @type {Kept[]} newest first */
    this.kept = [];
    /** @type {{ localMicros: number, centralMicros: number, limits: any, choices: number } | null} */
    this.account = null;
    /** @type {Shown | null} */
    this.shown = null;
    this.isSpending = false;
    this.trouble = "";
    /** Whether the trouble is that somebody does not answer. */
    this.isAway = false;
  }

  /** Where ads are shown; the phone says so. @type {HTMLElement | null} */
  slot = null;

  /** @param {string} name */
  #tell(name = "device") {
    this.env.bus.dispatchEvent(new Event(name));
  }

  #store() {
    const { consent, context, liking, number } = this;
    try {
      localStorage.setItem(STORED, JSON.stringify({ consent, context, liking, number }));
    } catch {
      // What cannot be kept is asked for again.
    }
  }

  /** The name of a campaign's ad. @param {number | null} campaign */
  name(campaign) {
    return campaign === null ? "nothing" : (this.#names.get(campaign) ?? `Campaign ${campaign}`);
  }

  /** What is disclosed of the exact context. @returns {Place} */
  get disclosed() {
    const { attributes } = this.env.parties.hierarchy;
    const { levels } = this.env.parties.disclosure;
    return { levels, values: this.context.map((value, at) => climb(attributes[at], value, levels[at])) };
  }

  /** Open the device; once, and again where that failed. */
  open() {
    this.#opening ??= this.#open().catch((problem) => {
      this.#opening = undefined;
      throw problem;
    });
    return this.#opening;
  }

  async #open() {
    const { parties } = this.env;
    if (!parties)
      throw new Error("The ad server did not say who the parties are: load the page again when it is back.");
    const [page, account, bytes, messages] = await Promise.all([
      import("/device/tacit.js"),
      import("/device/account.js"),
      import("/device/bytes.js"),
      import("/device/messages.js"),
    ]);
    this.#code = { ...account, ...bytes, ...messages };
    // Other parties at the same address, or a new phone: another journal.
    const name = `tacit ${parties.server.signing.slice(0, 16)} ${this.number}`;
    this.#tacit = await page.openTacit({
      settings: parties,
      consent: this.consent === true,
      profile: this.profile(),
      context: this.context,
      journal: name,
    });
    await this.#tacit.setConsent(this.consent === true);
    await this.#read();
  }

  /** One thing at a time. @template T @param {() => Promise<T>} act @returns {Promise<T>} */
  #alone(act) {
    const done = this.#busy.then(act);
    this.#busy = done.then(
      () => {},
      () => {},
    );
    return done;
  }

  /**
   * Do something with the device. What goes wrong becomes one line, which goes when something works that could have
   * failed as well.
   * @param {() => Promise<void>} act
   * @param {boolean} [clears]
   */
  attempt(act, clears = true) {
    return this.#alone(async () => {
      let worked = false;
      try {
        await this.open();
        await act();
        worked = true;
        if (clears) this.back();
      } catch (problem) {
        this.isAway = /** @type {any} */ (problem)?.reason === "UNREACHABLE";
        this.trouble = explain(problem);
      }
      this.#tell();
      return worked;
    });
  }

  /** Nothing is wrong any more. */
  back() {
    this.trouble = "";
    this.isAway = false;
    this.#tell();
  }

  /** The person's answer. @param {boolean} consent */
  setConsent(consent) {
    this.consent = consent;
    this.#store();
    return this.attempt(async () => {
      await this.#tacit.setConsent(consent);
      await this.#next();
    });
  }

  /** Other tastes, or another place. @param {{ context?: string[], liking?: Record<number, number> }} change */
  setProfile(change) {
    Object.assign(this, change);
    this.#store();
    return this.attempt(async () => {
      await this.#tacit.setProfile(this.profile());
      await this.#read();
    }, false);
  }

  /** A click history that makes each campaign so much more likely than the others. Private chances are then those of the menu,
   * times how much each is liked, but for a factor that all have in common. */
  profile(entries = [...this.#menus.values()].flatMap((each) => each.entries)) {
    const rates = new Map(entries.map(({ campaign, rate }) => [campaign, rate]));
    const factor = (/** @type {number} */ campaign) => LIKINGS[this.liking[campaign] ?? 1];
    const least = Math.min(...[...rates.keys()].map(factor), ...[1].slice(rates.size));
    const clicks = [...rates].flatMap(([campaign, rate]) =>
      Array(Math.round(REQUESTS * rate * (factor(campaign) / least - 1))).fill([campaign, this.context]),
    );
    const levels = this.env.parties?.hierarchy ? [this.env.parties.hierarchy.levels.at(-1)] : [];
    return { clicks, levels, strength: REQUESTS, most: MOST_HISTORY };
  }

  /** Show one more ad. */
  next() {
    return this.attempt(() => this.#next());
  }

  async #next() {
    if (!this.slot?.isConnected) return;
    const known = this.#menus.size;
    let chances = await this.#tacit.pmf(this.context);
    await this.#read();
    if (this.#menus.size > known) {
      // The first look at a menu says what a taste is to be held against.
      await this.#tacit.setProfile(this.profile());
      chances = await this.#tacit.pmf(this.context);
    }
    const left = new Set(this.kept.filter((each) => each.state === "CHOSEN").map((each) => each.id));
    const ad = await this.#tacit.show(this.slot, this.context);
    for (const { title } of ad.creatives) this.#names.set(ad.campaign, title);
    await this.#read();
    const again = this.kept.some((each) => left.has(each.id) && each.state !== "CHOSEN");
    this.shown = { ...ad, chances: ad.lane === "personal" ? chances : null, again };
  }

  /** Whether one more private choice can be paid for, as far as is known. */
  get isSpent() {
    const epsilon = this.menu("personal")?.epsilonMicros;
    if (!this.account || !epsilon) return false;
    return !this.#account.affords(epsilon, Math.floor(Date.now() / 1000));
  }

  /** Show ads until no more private choice can be paid for. */
  async spend() {
    this.isSpending = true;
    for (let count = 0; count < 50; count++) {
      if (!(await this.next()) || this.shown?.lane !== "personal") break;
    }
    this.isSpending = false;
    this.#tell();
  }

  /** Look what became of reports. */
  settle() {
    return this.attempt(async () => {
      if (this.kept.some((each) => each.state === "SHOWN")) await this.#tacit.sendReports();
      if (this.kept.some((each) => each.state === "ACKED")) await this.#tacit.settle();
      await this.#read();
    }, false);
  }

  /** The newest menu of this place. @param {string} lane @returns {Menu | undefined} */
  menu(lane) {
    const here = placeName(this.disclosed);
    const all = [...this.#menus.values()].filter((each) => each.lane === lane && placeName(each.node) === here);
    return all.sort((one, other) => other.epoch - one.epoch)[0];
  }

  /** Read the journal: menus, impressions and the account. */
  async #read() {
    const { hex, readHead, readListed } = this.#code;
    for (const { key, data } of await this.#tacit.journal("m")) {
      if (!this.#menus.has(key)) this.#menus.set(key, (await readListed(data)).menu);
    }
    for (const { epoch, data } of await this.#tacit.journal("h")) {
      if (!this.#closes.has(epoch)) this.#closes.set(epoch, (await readHead(data, this.#keys)).closes);
    }
    for (const row of await this.#tacit.journal("i")) this.#rows.set(row.key, row);
    const rows = [...this.#rows.values()].filter((row) => SHOWABLE.includes(row.state));
    for (const row of rows) if (!this.#order.has(row.key)) this.#order.set(row.key, this.#order.size);
    this.kept = rows
      .map((/** @type {any} */ row) => {
        const menu = this.#menus.get("m" + hex(row.menuId));
        const { campaign, priceMicros } = menu?.entries[row.index - 1] ?? { campaign: null, priceMicros: 0 };
        const { state, epoch, expires, epsilonMicros, cohort } = row;
        const place = menu ? placeName(menu.node) : "";
        const about = { lane: menu?.lane ?? "", place, campaign, priceMicros, menu: hex(row.menuId) };
        return { id: row.key, state, epoch, expires, epsilonMicros, cohort, others: 0, ...about };
      })
      .sort(
        (/** @type {Kept} */ one, /** @type {Kept} */ other) =>
          other.epoch - one.epoch || this.#order.get(other.id) - this.#order.get(one.id),
      );
    this.account = await this.#tacit.account();
    const [begun] = await this.#tacit.journal("account");
    this.#account = new this.#code.Account(this.env.parties.limits, begun);
    await this.#readBatches().catch(() => {});
    await this.#readNames().catch(() => {});
  }

  /** Among how many others each report left: those of this phone hide nobody from who knows them. */
  async #readBatches() {
    /** @param {Kept} one @param {Kept} other */
    const areAlike = (one, other) => one.menu === other.menu && one.cohort === other.cohort;
    try {
      for (const each of this.kept) {
        const isAlone = this.kept.filter((other) => areAlike(each, other)).length === 1;
        if (!each.cohort || isAlone || this.#batches.has(each.id)) continue;
        const said = await this.#fetch(`reports/${each.id.slice(1)}`);
        if (said) this.#batches.set(each.id, this.#code.hex((await this.#statement(said)).batchId));
      }
    } finally {
      for (const each of this.kept) {
        const batch = this.#batches.get(each.id);
        const own = this.kept.filter((other) => {
          const theirs = this.#batches.get(other.id);
          return areAlike(each, other) && (!batch || !theirs || batch === theirs);
        });
        each.others = Math.max(0, (each.cohort ?? 0) - own.length);
      }
    }
  }

  /** How many reports of this phone's menus have left the proxy, in batches that it signed for. */
  async sent() {
    const own = this.kept.filter((each) => SENT.includes(each.state));
    for (const epoch of new Set(own.map((each) => each.epoch))) {
      if (this.#over.has(epoch)) continue;
      const said = await this.#fetch(`epochs/${epoch}/cohorts`);
      for (let at = 0; said && at < said.length; at += STATEMENT_BYTES) {
        const { batchId, menuId, reports } = await this.#statement(said.slice(at, at + STATEMENT_BYTES));
        const { hex } = this.#code;
        this.#signed.set(hex(batchId), { menu: hex(menuId), reports });
      }
      const last = Math.max(...own.filter((each) => each.epoch === epoch).map((each) => each.expires));
      const isSettled = own.every((each) => each.epoch !== epoch || each.state === "SETTLED");
      if (isSettled && Date.now() / 1000 > last + LATE_SECONDS) this.#over.add(epoch);
    }
    const menus = new Set(own.map((each) => each.menu));
    return [...this.#signed.values()].reduce((sum, each) => sum + (menus.has(each.menu) ? each.reports : 0), 0);
  }

  /** What the proxy signed of a batch. @param {Uint8Array} data */
  #statement(data) {
    return this.#code.readStatement(data, this.#keys);
  }

  /** What both parties sign with. */
  get #keys() {
    const { proxy, server } = this.env.parties;
    const { unhex } = this.#code;
    return { serverSigning: unhex(server.signing), proxySigning: unhex(proxy.signing) };
  }

  /** When menus of an epoch are no longer offered; as long as that is not known, never. @param {number} epoch */
  closes(epoch) {
    return this.#closes.get(epoch) ?? Infinity;
  }

  /** Bytes that the proxy has for every device. @param {string} path */
  async #fetch(path) {
    const answer = await fetch(`${this.env.parties.proxy.url}/billing/${path}`, { credentials: "omit" });
    return answer.status === 200 ? new Uint8Array(await answer.arrayBuffer()) : null;
  }

  /** Names of ads, from the pack that the device has anyway. */
  async #readNames() {
    const { hex, readPack } = this.#code;
    const menu = this.menu("personal");
    if (!menu || menu.entries.every(({ campaign }) => this.#packs.has(campaign))) return;
    const pack = await this.#fetch(`packs/${hex(menu.id)}`);
    if (!pack) return;
    const { campaigns } = await readPack(pack, this.#keys, menu.id);
    for (const { number, creatives } of campaigns) {
      this.#packs.add(number);
      if (creatives[0]) this.#names.set(number, creatives[0].title);
    }
  }

  /** A new phone with a wallet of its own: something that only a demonstration has. */
  replace() {
    this.number += 1;
    this.consent = null;
    this.#store();
    location.reload();
  }
}

/** What went wrong, in one calm line. @param {any} problem */
function explain(problem) {
  switch (problem?.reason) {
    case "UNREACHABLE":
      return "The proxy does not answer, or the ad server behind it: what was shown last stays, and reports wait on the phone until both are back.";
    case "CONFLICT":
    case "FORGED":
    case "MALFORMED":
    case "NOT_LISTED":
    case "UNAUTHENTICATED":
    case "UNKNOWN_MENU":
    case "UNOPENABLE":
      return "What came was not what both parties had signed. The phone refused it: it shows nothing new, and reads nothing private.";
    case "NONE_LEFT":
    case "STALE_EPOCH":
    case "UNKNOWN_CONTEXT":
      return "There is no menu for this place right now: the next one comes within a minute.";
    case "SPENT":
      return "This menu asks for more than one choice may give away. The phone refused it.";
    default:
      return problem?.reason
        ? `The phone refused: ${problem.message}.`
        : problem instanceof Error
          ? problem.message
          : String(problem);
  }
}

/** @returns {any} */
function restore() {
  try {
    return JSON.parse(localStorage.getItem(STORED) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

/** The exact values of an attribute: those that nothing stands below. @param {{ parents: Record<string, string | null> }} attribute */
function leaves({ parents }) {
  const above = new Set(Object.values(parents));
  return Object.keys(parents).filter((each) => !above.has(each));
}

/** @param {{ parents: Record<string, string | null> }} attribute @param {string} value @param {number} levels */
function climb({ parents }, value, levels) {
  let found = value;
  for (let each = 0; each < levels; each++) found = parents[found] ?? found;
  return found;
}
