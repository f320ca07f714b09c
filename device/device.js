/** The device as a party of billing: it tells little, chooses privately, and reports each impression once. Its journal is its memory. */
import { Account } from "./account.js";
import { attempt, decode, demand, equal, hex, isOf, random, refuse, unhex } from "./bytes.js";
import { barredCampaigns, choose, deviceScores, entryIndex } from "./choice.js";
import { contextNumber, generalise } from "./contexts.js";
import { checkListed, contextBytes, makeReport, readHead, readListed, readOffer, readPack, readStatement, sealRequest } from "./messages.js";
import { planMenu } from "./plans.js";
import { drawToken, finalize } from "./tokens.js";

const DEFAULTS = { prefetch: 4, skewSeconds: 300, settleSeconds: 86_400, keepSeconds: 604_800, excluded: [] };
const MOST_TOKENS = 16;
const isIssued = ({ state }) => state === "ISSUED";
const latest = (one, other) => other.epoch - one.epoch;

/** Goes on with `act` after a refusal for one of these reasons. */
const after = (reasons, act) => (error) => {
  if (isOf(reasons, error)) return act(error);
  throw error;
};

/** What became of a call: ACCEPTED, or why not; UNREACHABLE where nobody answered. */
const verdictOf = (call) => call.then(() => "ACCEPTED", (error) => error.reason ?? Promise.reject(error));

/** Calls to the proxy, each tried three times. `onMessage` is told of each message as it is sent. */
export function httpChannel(url, onMessage) {
  const { protocol, hostname, username } = attempt(() => new URL(url), "an address of the proxy");
  const isHere = protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(hostname);
  demand((protocol === "https:" || isHere) && !username, "https, but on this machine");
  const ask = async (kind, path, method = "GET", bytes, pause = 250) => {
    onMessage?.({ to: url, kind, method, path, bytes });
    const [status, said] = await fetch(`${url}/${path}`, {
      method, body: bytes, credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error",
      signal: AbortSignal.timeout(10_000),
    }).then(async (answer) => [answer.status, new Uint8Array(await answer.arrayBuffer())]).catch(() => [599]);
    if (status < 300) return said.length ? said : null;
    if (status < 500 && ![408, 425, 429].includes(status)) {
      const reason = /"tacit:(?:bill-)?([a-z-]+)"/.exec(decode(said))?.[1].replaceAll("-", "_").toUpperCase();
      refuse(reason && !isOf("ACCEPTED MOVED_ON", { reason }) ? reason : "UNREACHABLE", `expected an answer to ${kind}, got ${status}`);
    }
    demand(pause < 1000, "an answer from the proxy", "UNREACHABLE");
    await new Promise((done) => setTimeout(done, pause * (0.5 + random(1)[0] / 512)));
    return ask(kind, path, method, bytes, 2 * pause);
  };
  return {
    head: () => ask("head", "billing/head"),
    offer: (sealed) => ask("offer", "billing/offers", "POST", sealed),
    report: (report, nonce) => ask("report", `billing/reports/${hex(nonce)}`, "PUT", report),
    statement: (nonce) => ask("statement", `billing/reports/${hex(nonce)}`),
    statements: (epoch) => ask("statements", `billing/epochs/${epoch}/cohorts`),
    pack: (menuId) => ask("pack", `billing/packs/${hex(menuId)}`),
    rounds: () => ask("rounds", "rounds"),
    count: (path, upload) => ask("count", path, "PUT", upload),
  };
}

/** What a choice shows, and what it costs; campaign null: nothing, which is reported too. */
function adOf({ index, epsilonMicros, menuId, nonce, epoch }, { menu }) {
  const { campaign, priceMicros } = menu.entries[index - 1] ?? { campaign: null, priceMicros: 0 };
  return { campaign, priceMicros, lane: menu.lane, epsilonMicros, disclosed: menu.node, epoch, menuId, index, nonce };
}

/** One device. Without consent, and where the account cannot pay, nothing private is read: `rates` is not called. */
export class AdDevice {
  #head;
  #menus = new Map(); // by id and by place; null: there is none
  #showing = new Map(); // contexts of choices that were handed out
  #last = Promise.resolve();
  #sent = Promise.resolve();

  /** @param {object} settings parties.json, and a person's own @param {(menu: object, context: object) => number[]} rates by candidate */
  constructor(settings, journal, channel, rates, consent = false) {
    const { server, proxy } = settings;
    this.lock = `tacit ${server.signing.slice(0, 16)}`;
    this.keys = { serverSigning: unhex(server.signing), proxySigning: unhex(proxy.signing), serverKey: unhex(server.sealing) };
    Object.assign(this, { settings: { ...DEFAULTS, ...settings }, journal, channel, rates, consent: consent === true });
  }

  now() { return Math.floor(Date.now() / 1000); }

  /** One operation at a time, in all tabs where there are locks; from its beginning again where another tab was faster. */
  #alone(act) {
    const insist = (left = 3) => act().catch(after(left ? "MOVED_ON" : "", () => insist(left - 1)));
    const { locks } = globalThis.navigator ?? {};
    return locks ? locks.request(this.lock, () => insist()) : (this.#last = this.#last.then(() => insist(), () => insist()));
  }

  /** What was spent, as the journal has it. A window ends as long as it was when it was begun. */
  async account() {
    const { limits } = this.settings, kept = await this.journal.get("account");
    if (!kept || kept.seconds === limits.windowSeconds) return new Account(limits, kept);
    const before = new Account({ ...limits, windowSeconds: kept.seconds }, kept);
    return before.windowOf(this.now()) > kept.window ? new Account(limits, { turn: kept.turn }) : before;
  }

  /** One impression: chosen, shown by `render`, ready to be reported. */
  async show(context, render) {
    const ad = await this.choose(context);
    try {
      await render?.(ad);
    } catch (error) {
      this.putBack(ad);
      throw error;
    }
    await this.confirmShown(ad);
    return ad;
  }

  /** What to show: drawn once, paid for and kept. A choice at this menu that was not shown is the next one. */
  choose(context) {
    const act = () => this.#choose(context);
    return this.#alone(() => act().catch(after("STALE_EPOCH NONE_LEFT WITHDRAWN", async (error) => {
      const stale = this.#isCurrent() && this.#head;
      this.#head = null;
      const hasMoved = stale && (await this.#fetchHead()).epoch !== stale.epoch;
      if (!hasMoved && error.reason === "STALE_EPOCH") throw error;
      return act();
    })));
  }

  async #choose(context) {
    const here = this.generalise(context), [open, tokens] = await this.#menuAt(here.disclosed), { menu, plan, epsilonMicros } = open;
    const pack = (open.pack ??= await readPack(await this.channel.pack(menu.id), this.keys, menu.id));
    const inPack = ({ campaign }) => pack.campaigns.find(({ number }) => number === campaign);
    let record = this.#leftOver(tokens);
    if (!record) {
      const token = tokens.find(isIssued) ?? (await this.#fetch(open, tokens, this.settings.prefetch))[0];
      const at = this.now(), account = epsilonMicros && (await this.account()), paid = account && account.reserve(epsilonMicros, at);
      const shown = (await this.journal.all("s")).filter(({ until }) => until > at);
      demand(this.consent || !plan, "consent", "WITHDRAWN");
      const barred = () => barredCampaigns(pack, shown, this.settings.excluded, at);
      const index = entryIndex(menu, plan ? choose(plan, deviceScores(menu, this.rates(menu, here), barred())) : 0);
      record = { ...token, state: "CHOSEN", index, epsilonMicros, window: paid.window };
      const ad = adOf(record, open), until = at + Math.max(0, ...(inPack(ad)?.caps ?? []).map(({ seconds }) => seconds));
      await this.journal.commit([record], paid, until > at ? [{ key: "s" + hex(ad.nonce), campaign: ad.campaign, at, until }] : []);
    }
    const ad = adOf(record, open);
    this.#showing.set(hex(ad.nonce), context);
    return { ...ad, creatives: inPack(ad)?.creatives ?? [] };
  }

  /** A context's nodes, and the one that is told: at levels, or by a published cut (`disclosure.told`). */
  generalise(context) {
    const { hierarchy, disclosure } = this.settings;
    return generalise(hierarchy, context, disclosure.told ? disclosure : disclosure.levels);
  }

  /** The menu to choose from, and its tokens for which nothing was shown yet. */
  async #menuAt(node) {
    if (!this.#isCurrent()) await this.#fetchHead();
    const unshown = ({ menu }) => this.journal.impressions(["NEW", "ISSUED", "CHOSEN"], menu.id);
    // A no in one tab is a no in all.
    const agreed = this.consent && (await this.journal.get("consent"))?.given !== false;
    const open = agreed && (await this.#menu(node, "personal"));
    if (open) {
      const account = await this.account(), tokens = await unshown(open);
      demand(open.menu.epsilonMicros <= account.most[2], "a menu within the limit of one choice", "SPENT");
      const can = (!open.gone || tokens.some(isIssued)) && account.affords(open.epsilonMicros, this.now()) && (await this.#isHidden(open));
      if (can || this.#leftOver(tokens)) return [open, tokens];
    }
    const all = await this.#menu(node, "public");
    return [all, await unshown(all)];
  }

  /** A choice that was drawn and that nobody is showing. */
  #leftOver(tokens) { return tokens.find(({ state, nonce }) => state === "CHOSEN" && !this.#showing.has(hex(nonce))); }

  #isCurrent(skew = 0, { opens, closes } = this.#head ?? {}) { return opens - skew <= this.now() && this.now() < closes + skew; }

  async #fetchHead() {
    const head = await readHead(await this.channel.head(), this.keys);
    const fits = this.#isCurrent(this.settings.skewSeconds, head);
    demand(fits, `a clock between ${head.opens} and ${head.closes}, got ${this.now()}`, "STALE_EPOCH");
    await this.journal.keepHead(head);
    return (this.#head = head);
  }

  /** The one menu of a context and lane: from memory, the journal or the ad server; null where no personal one is to be had. */
  async #menu(node, lane) {
    const head = this.#head, { epoch, expires } = head, place = lane + hex(contextBytes(node));
    if (this.#menus.has(place + epoch)) return this.#menus.get(place + epoch);
    const find = async () => {
      const kept = (await this.journal.all("m")).find((each) => each.place === place && each.epoch === epoch);
      const listed = kept ? await readListed(kept.data) : (await this.#ask({ epoch, lane, node, blinded: [] })).listed;
      const open = await this.#open(head, demand(listed, "a menu in the answer"), node, lane, place);
      await this.journal.commit([], null, [{ key: "m" + hex(listed.menu.id), epoch, expires, place, data: listed.data }]);
      return open;
    };
    return find().catch(after(lane === "public" ? "" : "UNKNOWN_CONTEXT UNSUPPORTED", () => {
      this.#menus.set(place + epoch, null); // asked for once
    }));
  }

  /** A menu that stands where it belongs, and the law that everybody chooses by. */
  async #open(head, listed, node, lane, place) {
    await checkListed(listed, head, node, lane);
    const { menu, tokenKey } = listed, plan = await planMenu(menu);
    const open = { head, menu, tokenKey, plan, place, epsilonMicros: plan ? menu.epsilonMicros : 0 };
    this.#menus.set(hex(menu.id), open).set(place + head.epoch, open);
    return open;
  }

  /** A menu that this device has had; null where it was forgotten, or its parties are not known any more. */
  async #kept(menuId) {
    try {
      const id = hex(menuId), kept = this.#menus.get(id) ?? (await this.journal.get("m" + id));
      if (kept.menu) return kept;
      const listed = await readListed(kept.data), head = await readHead((await this.journal.get("h" + kept.epoch)).data, this.keys);
      return await this.#open(head, listed, listed.menu.node, listed.menu.lane, kept.place);
    } catch {
      return null;
    }
  }

  async #ask(request) {
    const answerKey = random(32);
    return readOffer(await this.channel.offer(await sealRequest({ ...request, answerKey }, this.keys.serverKey)), answerKey);
  }

  /** Tokens, or one where fewer are left. Secrets are kept before anything leaves. */
  async #fetch(open, unshown, count) {
    const { menu, tokenKey, head } = open, { id: menuId, epoch, smallestCohort } = menu;
    const waiting = unshown.filter(({ state }) => state === "NEW"), known = waiting.length;
    const wanted = open.gone ? 0 : open.scarce ? 1 : Math.min(count, MOST_TOKENS);
    demand(wanted, "tokens of this menu", "NONE_LEFT");
    while (waiting.length < wanted) {
      waiting.push({ ...(await drawToken(tokenKey, menuId)), state: "NEW", menuId, epoch, expires: head.expires, smallestCohort });
    }
    await this.journal.commit(waiting.slice(known));
    return this.#issue(open, waiting.slice(0, wanted)).catch(after("NONE_LEFT", () => {
      open.scarce = true;
      open.gone = wanted === 1;
      return this.#fetch(open, waiting, 1);
    }));
  }

  async #issue({ menu, tokenKey }, asked) {
    const { epoch, lane, node, id } = menu;
    const { signatures } = await this.#ask({ epoch, lane, node, known: id, blinded: asked.map(({ blinded }) => blinded) });
    demand(signatures.length === asked.length, "a signature for each token");
    const tokens = await Promise.all(asked.map(({ nonce, inverse }, at) => finalize(tokenKey, id, nonce, signatures[at], inverse)));
    const issued = asked.map((each, at) => ({ ...each, state: "ISSUED", token: tokens[at] }));
    await this.journal.commit(issued);
    return issued;
  }

  /** Whether nine in ten reports of this context left among enough others, by signed sizes of its last epochs; or nothing is known. */
  async #isHidden(open) {
    const { smallestCohort } = this.settings;
    if (!smallestCohort || "usual" in open) return !(open.usual < smallestCohort);
    const kept = (await this.journal.all("m")).filter(({ place }) => place === open.place).sort(latest);
    let usual, covered = 0;
    for (const { epoch, key } of kept.slice(0, 2)) {
      const said = await this.channel.statements(epoch).catch(after("UNREACHABLE", () => 0)), sizes = [];
      if (said === 0) return true; // asked for again
      for (let at = 0; at < said?.length; at += 121) {
        const one = said.slice(at, at + 121);
        if ("m" + hex(one.slice(17, 49)) === key) sizes.push((await readStatement(one, this.keys)).reports);
      }
      const all = sizes.reduce((sum, size) => sum + size, 0);
      usual ??= sizes.sort((one, other) => other - one).find((size) => 10 * (covered += size) >= 9 * all);
    }
    open.usual = usual;
    return this.#isHidden(open);
  }

  /** It was shown: make its report, and keep it, in one commit. Again: nothing changes. */
  confirmShown({ nonce }) {
    return this.#alone(async () => {
      const id = hex(nonce), record = await this.journal.get("i" + id), context = this.#showing.get(id), second = this.now();
      demand(record?.index >= 0, "an ad that this device has chosen");
      demand(record.state !== "CLOSED", "a choice that may still be shown", "CLOSED");
      if (record.state === "CHOSEN") {
        const open = demand(await this.#kept(record.menuId), "a menu of parties that are known", "UNKNOWN_MENU");
        const report = await makeReport(record.menuId, record.secret, record.token, record.index, open.head.sealingKey);
        const { campaign } = adOf(record, open), until = second + this.settings.keepSeconds;
        const counts = this.settings.statistics && context && campaign !== null;
        const events = counts ? [{ key: "e" + id, nonce, context, campaign, second, clicked: false, until }] : [];
        await this.journal.commit([{ ...record, state: "SHOWN", report }], null, events);
      }
      this.#showing.delete(id);
    });
  }

  /** It was not shown: the next choice at its menu is this one. */
  putBack({ nonce }) { this.#showing.delete(hex(nonce)); }

  /** It was clicked: that stays here, for rounds of statistics. */
  noteClick({ nonce }) {
    return this.journal.transact(async (rows) => {
      const event = await rows.get("e" + hex(nonce));
      return !!event && !!(await rows.put({ ...event, clicked: true }));
    });
  }

  /** Answer open rounds of statistics, where the person lets this device count (`settings.statistics`: {perRound, mostDelta}, the largest epsilon and delta);
   * how many took it. @param {{id: string, key: string}} enrolled what the app was given for it, in hex */
  async answerRounds({ id, key }) {
    const { statistics, hierarchy, server, proxy } = this.settings;
    if (!statistics) return 0;
    const { answerRound, readRounds } = await import("./statistics.js");
    const send = async (path, data) => {
      const verdict = await verdictOf(this.channel.count(path.slice(1), data));
      demand(verdict !== "UNREACHABLE", "an answer from the proxy", verdict);
      return verdict === "ACCEPTED" ? "" : verdict;
    };
    const nodeOf = async (levels, context) => contextNumber(generalise(hierarchy, context, levels).disclosed);
    const device = {
      id: unhex(id), key: unhex(key), proxyKey: unhex(proxy.sealing), serverKey: unhex(server.sealing),
      most: statistics.perRound ?? 2, mostDelta: statistics.mostDelta, levels: hierarchy.levels, nodeOf,
    };
    let taken = 0;
    const said = await this.channel.rounds();
    for (const each of said ? readRounds(said) : [])
      taken += await this.#alone(() => answerRound(each, device, this.journal, send)).catch(after("MALFORMED UNSUPPORTED CONFLICT", () => 0));
    return taken;
  }

  /** The menu that would be chosen from, and its law: public. */
  look(context) { return this.#alone(async () => (await this.#menuAt(this.generalise(context).disclosed))[0]); }

  /** Fetch tokens before they are needed; how many there are now. */
  prefetch(context) {
    return this.#alone(async () => {
      const [open, tokens] = await this.#menuAt(this.generalise(context).disclosed), ready = tokens.filter(isIssued);
      const lacking = this.settings.prefetch - ready.length;
      const more = lacking > 0 ? await this.#fetch(open, tokens, lacking).catch(after("NONE_LEFT", () => [])) : [];
      return ready.length + more.length;
    });
  }

  /** Send reports, byte for byte as they were made, until the proxy has them or they have expired. Nothing else waits for it. */
  sendReports() { return (this.#sent = this.#sent.then(() => this.#send(), () => this.#send())); }

  async #send() {
    const records = await this.journal.impressions(["SHOWN"]), done = [], refused = [];
    for (const record of records) {
      let verdict = await verdictOf(this.channel.report(record.report, record.nonce));
      if (verdict === "UNREACHABLE") break;
      if (verdict !== "ACCEPTED") {
        refused.push(verdict);
        if (this.now() < record.expires + (verdict === "EXPIRED" ? 0 : this.settings.skewSeconds)) continue;
        verdict = await verdictOf(this.channel.statement(record.nonce)); // it may have been taken, and only the answer was lost
        if (verdict === "UNREACHABLE") continue;
      }
      done.push({ ...record, state: verdict === "ACCEPTED" ? "ACKED" : "CLOSED" });
    }
    await this.#alone(async () => {
      const left = (await this.journal.impressions(["SHOWN"])).map(({ key }) => key);
      await this.journal.commit(done.filter(({ key }) => left.includes(key))); // another tab may have been faster
    });
    return { acked: done.filter(({ state }) => state === "ACKED").length, waiting: records.length - done.length, refused };
  }

  /** Ask among how many others reports left; what stays unknown counts in full for ever. */
  async settle() {
    const found = new Map();
    for (const record of await this.journal.impressions(["ACKED"])) {
      const said = await this.#statement(record).catch(after("UNREACHABLE", () => 0));
      if (said === 0) break; // asked for again
      found.set(record.key, said);
    }
    return this.#alone(() => this.#settle(found));
  }

  async #settle(found) {
    const own = await this.journal.impressions(["SHOWN", "ACKED", "SETTLED"]), settled = [], sizes = [];
    const records = own.filter(({ state }) => state === "ACKED");
    for (const record of records) {
      const said = found.get(record.key), { menuId, epsilonMicros: micros, window } = record;
      const isOver = this.now() >= record.expires + this.settings.settleSeconds;
      if (said || isOver) settled.push({ ...record, state: "SETTLED", cohort: said?.reports });
      // Those of this device that may be in the batch and count in full hide nothing of the others.
      const full = own.filter((each) => equal(each.menuId, menuId) && each.cohort === undefined && !found.get(each.key));
      const cohort = said?.reports - full.length;
      if (said?.reports >= record.smallestCohort && cohort >= 1) sizes.push({ micros, window, cohort, batch: hex(said.batchId) });
    }
    const before = await this.account(), account = before.settle(sizes);
    await this.journal.commit(settled, account !== before && account);
    return { bySize: sizes.length, inFull: settled.length - sizes.length, waiting: records.length - settled.length };
  }

  /** What the proxy signed of a report's batch; null while it says nothing that counts. */
  async #statement({ nonce, menuId, epoch }) {
    try {
      const said = await readStatement(await this.channel.statement(nonce), this.keys);
      return equal(said.menuId, menuId) && said.epoch === epoch ? said : null;
    } catch (error) {
      if (error.reason === "UNREACHABLE") throw error;
      return null;
    }
  }

  /** Whether the person agrees. Where they no longer do, what was drawn by it is closed. */
  setConsent(consent) {
    const given = (this.consent = consent === true);
    return this.#alone(async () => {
      await this.journal.commit([], null, [{ key: "consent", given }]);
      return this.#close();
    });
  }

  #isOpen(open) { return open && this.now() < open.head.closes + this.settings.skewSeconds; }

  /** Close choices whose epoch is over, or that the person no longer agrees to. */
  async #close() {
    const closed = [], pending = [];
    for (const record of await this.journal.impressions(["CHOSEN"])) {
      const open = await this.#kept(record.menuId);
      if (!this.#isOpen(open) || (open.menu.lane === "personal" && !this.consent)) closed.push({ ...record, state: "CLOSED" });
      else if (this.#leftOver([record])) pending.push(adOf(record, open));
    }
    await this.journal.commit(closed);
    return { pending, closed: closed.length };
  }

  /** Go on after a start, from every state; what nobody answers waits. */
  async recover() {
    const begun = await this.#alone(async () => {
      const found = await this.#close(), unsigned = await this.journal.impressions(["NEW"]);
      for (const id of new Set(unsigned.map(({ menuId }) => hex(menuId)))) {
        const open = await this.#kept(unhex(id)), asked = unsigned.filter(({ menuId }) => hex(menuId) === id);
        if (this.#isOpen(open)) await verdictOf(this.#issue(open, asked.slice(0, MOST_TOKENS)));
      }
      if (!this.settings.statistics) await this.journal.erase("er");
      return found;
    });
    return { ...begun, sent: await this.sendReports(), settled: await this.settle() };
  }

  /** Delete what nothing needs any more; how many impressions that were. */
  forget() {
    this.#menus.clear();
    return this.journal.forget(this.now(), this.now() - this.settings.settleSeconds - this.settings.keepSeconds);
  }

  /** Delete all that tells of the person. What was not reported goes uncharged; what was spent stays spent. */
  erase() {
    this.#showing.clear();
    this.#menus.clear();
    return this.#alone(() => this.journal.erase());
  }
}
