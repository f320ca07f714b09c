/** The device's law: what is told, drawn, paid, kept and reported, and what is refused. (Faults at each point: crashes.test.mjs.) */
import assert from "node:assert/strict";
import test from "node:test";

import { hex, Refused } from "../../device/bytes.js";
import { httpChannel } from "../../device/device.js";
import { Journal, memoryRows } from "../../device/journal.js";
import { assertRefused } from "./support.mjs";
import { LIMITS, NEW, OLD, ratesOf, TIMES, Town, TWO } from "./town.mjs";

/** How far the share of 80 draws may be from its chance: by Hoeffding farther once in 10^9. */
const FALSE_ALARM = Math.sqrt(Math.log(2e9) / 160);
const noRates = () => assert.fail("a private rate was asked for");
/** The same device, by a clock of its own. */
const at = (device, second) => Object.assign(device, { now: () => second });
const states = async (device) => (await device.journal.all("i")).map(({ state }) => state).sort();
const local = async (device) => (await device.account()).localMicros;

test("one impression, from token to settled", async () => {
  const town = await Town.open(), rates = ratesOf(0.01, 0.09, 0.02), device = town.device({ rates });
  const ad = await device.show(OLD);
  assert.deepEqual([ad.lane, ad.epsilonMicros, ad.disclosed.values, ad.epoch], ["personal", TWO, ["Old"], 1]);
  assert.equal(ad.creatives[0].title, `ad ${ad.campaign}`);
  assert.equal(rates.asked, 1);
  assert.deepEqual(await states(device), ["ISSUED", "SHOWN"]);
  assert.deepEqual(await device.sendReports(), { acked: 1, waiting: 0, refused: [] });
  assert.deepEqual(await device.settle(), { bySize: 0, inFull: 0, waiting: 1 });
  assert.equal((await device.account()).centralMicros, TWO, "in full until a size is known");
  await town.bill(40_000);
  assert.deepEqual(await device.settle(), { bySize: 1, inFull: 0, waiting: 0 });
  const account = await device.account();
  assert.equal(account.localMicros, TWO);
  assert.ok(account.centralMicros < TWO / 2);
  assert.deepEqual(await states(device), ["ISSUED", "SETTLED"]);
  const [charged] = town.reports.values();
  assert.deepEqual([charged.index, charged.price], [ad.index, ad.priceMicros]);
  assert.ok(town.asked.every(({ node }) => node.values[0] === "Old"), "the exact place is told to nobody");
});

test("without consent nothing private is read, and nothing spent", async () => {
  for (const consent of [false, undefined, 1, "true", {}]) {
    const town = await Town.open(), device = town.device({ rates: noRates, consent: consent ?? false });
    const ad = await device.show(OLD);
    assert.deepEqual([ad.lane, ad.epsilonMicros, ad.index], ["public", 0, 1]);
    assert.equal(await local(device), 0);
    assert.ok(town.asked.every(({ lane }) => lane === "public"));
  }
});

test("a spent account takes the public lane, until the window is over", async () => {
  const town = await Town.open(), limits = { ...LIMITS, local: 3, central: 3, windowSeconds: 1000 }, device = town.device({ limits });
  const lanes = [];
  for (const now of [11_000, 11_001, 10_999, 12_000]) lanes.push((await at(device, now).show(OLD)).lane);
  assert.deepEqual(lanes, ["personal", "public", "public", "personal"], "also by a clock that was set back");
});

test("a menu that asks for more than one choice may spend is refused", async () => {
  const town = await Town.open(), device = town.device({ rates: noRates, limits: { ...LIMITS, perChoice: 1.9 } });
  await assertRefused("SPENT", () => device.show(OLD));
  assert.equal(await local(device), 0);
});

test("where no private choice wins anything the public best is shown at epsilon 0", async () => {
  const town = await Town.open();
  await town.openEpoch(2, { opens: 40_000, closes: 50_000, expires: 60_000 }, { epsilonMicros: 1 });
  town.now = 41_000;
  const device = town.device({ rates: noRates }), ad = await device.show(OLD);
  assert.deepEqual([ad.lane, ad.epsilonMicros, ad.index], ["personal", 0, 1]);
});

test("a choice follows the person's rates as often as its law says", async () => {
  const town = await Town.open(), device = town.device({ limits: { ...LIMITS, local: 2000, central: 2000 }, prefetch: 16 });
  const { plan } = await device.look(OLD), expected = Number(plan.high) / 2 ** 64;
  let favoured = 0;
  for (let n = 0; n < 80; n++) favoured += (await device.show(OLD)).index === 2;
  assert.ok(Math.abs(favoured / 80 - expected) < FALSE_ALARM, `${favoured} of 80, expected ${expected} of each`);
});

test("what was drawn and not shown is the next choice, whatever the rates are by then", async () => {
  const town = await Town.open(), rows = new Map(), device = town.device({ journal: new Journal(memoryRows(rows)) });
  await assert.rejects(() => device.show(OLD, () => { throw new Error("no screen"); }), /no screen/);
  const rates = ratesOf(0.09, 0.001, 0.001), again = town.device({ journal: new Journal(memoryRows(rows)), rates });
  const [pending] = (await again.recover()).pending;
  const ad = await again.choose(OLD);
  assert.deepEqual([ad.index, hex(ad.nonce)], [pending.index, hex(pending.nonce)]);
  assert.equal(rates.asked, 0);
  assert.equal(await local(again), TWO);
  assert.deepEqual((await again.recover()).pending, [], "it is being shown");
  const other = await again.choose(OLD);
  assert.notEqual(hex(other.nonce), hex(ad.nonce), "two at once are two");
  await again.confirmShown(ad);
  await again.confirmShown(ad);
  assert.equal((await again.sendReports()).acked, 1);
});

test("what was not chosen cannot be shown", async () => {
  const town = await Town.open(), device = town.device();
  await device.prefetch(OLD);
  const [{ nonce }] = await device.journal.all("i");
  await assertRefused("MALFORMED", () => device.confirmShown({ nonce }));
  await assertRefused("MALFORMED", () => device.confirmShown({ nonce: new Uint8Array(32) }));
});

test("who takes consent back is shown nothing that was chosen by it", async () => {
  const town = await Town.open(), device = town.device(), ad = await device.choose(OLD);
  assert.equal((await device.setConsent(false)).closed, 1);
  await assertRefused("CLOSED", () => device.confirmShown(ad));
  device.rates = noRates;
  assert.equal((await device.show(OLD)).lane, "public");
  assert.equal(await local(device), TWO, "what was spent stays spent");
  assert.equal((await device.sendReports()).acked, 1);
});

test("consent that is taken back while tokens are fetched", async () => {
  const town = await Town.open(), device = town.device({ rates: noRates });
  town.lose = (kind, count) => void (kind === "pack" && count < 4 && device.setConsent(false));
  assert.equal((await device.show(OLD)).lane, "public");
});

test("tokens are fetched before they are needed, as many as are to be had", async () => {
  const town = await Town.open(), device = town.device({ prefetch: 4 });
  assert.equal(await device.prefetch(OLD), 4);
  assert.equal(await device.prefetch(OLD), 4);
  town.tokens = { personal: 1, public: 1 };
  assert.equal(await device.prefetch(NEW), 1, "four were not left, one was");
  await device.prefetch(NEW);
  const asked = town.asked.filter(({ lane, node }) => lane === "personal" && node.values[0] === "New").map(({ blinded }) => blinded.length);
  assert.deepEqual(asked, [0, 4, 1, 1], "then one at a time, and none where none is left");
  const lanes = [];
  for (let n = 0; n < 2; n++) lanes.push((await device.show(NEW)).lane);
  assert.deepEqual(lanes, ["personal", "public"]);
  await assertRefused("NONE_LEFT", () => device.show(NEW));
});

test("a stale epoch is asked for once more", async () => {
  const town = await Town.open(), device = town.device();
  await device.prefetch(NEW);
  town.stale = 1;
  await town.openEpoch(2, { opens: 10_500, closes: 20_000, expires: 30_000 });
  assert.equal((await device.show(OLD)).epoch, 2);
  town.stale = 2;
  const heads = town.calls.filter((kind) => kind === "head").length;
  await assertRefused("STALE_EPOCH", () => device.show(NEW));
  assert.equal(town.calls.filter((kind) => kind === "head").length, heads + 1);
});

test("a clock that is too far off", async () => {
  for (const [now, fits] of [[TIMES.opens - 301, false], [TIMES.opens - 300, true], [TIMES.closes + 299, true], [TIMES.closes + 300, false]]) {
    const town = await Town.open(), device = at(town.device(), now);
    if (fits) assert.equal((await device.show(OLD)).epoch, 1);
    else await assertRefused("STALE_EPOCH", () => device.show(OLD));
  }
});

test("nothing waits for a proxy that takes a report and never answers, or answers no question", async () => {
  const town = await Town.open(), channel = town.channel(), asked = [];
  const device = town.device({ channel: { ...channel, report: (...given) => (asked.push("report"), town.hanging ? new Promise(() => {}) : channel.report(...given)) } });
  await device.show(OLD);
  await device.show(OLD);
  town.hanging = true;
  device.sendReports();
  await new Promise((done) => setTimeout(done, 20));
  assert.deepEqual(asked, ["report"]);
  assert.equal((await device.choose(OLD)).lane, "personal");

  const other = town.device(), unreachable = async () => {
    asked.push("statement");
    throw new Refused("UNREACHABLE", "nobody is there");
  };
  for (let times = 2; times; times--) await other.show(OLD);
  assert.equal((await other.sendReports()).acked, 2);
  other.channel = { ...channel, statement: unreachable };
  asked.length = 0;
  assert.deepEqual(await other.settle(), { bySize: 0, inFull: 0, waiting: 2 });
  assert.deepEqual(asked, ["statement"], "after the first the rest is asked another time");
});

test("a window ends as it was begun where the settings have another length by then", async () => {
  const town = await Town.open(), journal = new Journal(memoryRows()), { limits } = town.settings;
  await town.device({ journal }).show(OLD);
  const changed = town.device({ journal, limits: { ...limits, windowSeconds: 2 * limits.windowSeconds } });
  assert.equal((await changed.account()).localMicros, TWO, "what was spent is still spent");
  assert.equal((await changed.show(OLD)).lane, "personal");
  town.now = limits.windowSeconds * (Math.floor(town.now / limits.windowSeconds) + 1);
  const begun = await changed.account();
  assert.deepEqual([begun.localMicros, begun.seconds], [0, 2 * limits.windowSeconds]);
});

test("a second directory of an epoch is refused, also after a restart", async () => {
  const town = await Town.open(), rows = new Map(), device = town.device({ journal: new Journal(memoryRows(rows)) });
  await device.prefetch(OLD);
  town.otherHead = { data: await (await Town.open()).openEpoch(1, TIMES, { epsilonMicros: 1_500_000 }) };
  const again = town.device({ journal: new Journal(memoryRows(rows)), rates: noRates });
  await assertRefused("CONFLICT", () => again.show(OLD));
  town.otherHead = null;
  assert.equal((await town.device({ journal: new Journal(memoryRows(rows)) }).show(OLD)).lane, "personal");
});

test("heads, menus and tokens that others do not have", async () => {
  const town = await Town.open(), flip = (data, at) => data.map((byte, place) => (place === at ? byte ^ 1 : byte));
  const attacks = {
    UNAUTHENTICATED: () => (town.otherHead = { data: flip(town.heads.get(1).data, 200) }),
    NOT_LISTED: () => (town.otherMenu = ({ data, lane }) => (lane === "personal" ? flip(data, data.length - 20) : data)),
    FORGED: () => (town.badSignatures = true),
  };
  for (const [reason, attack] of Object.entries(attacks)) {
    Object.assign(town, { otherHead: null, otherMenu: null, badSignatures: false });
    attack();
    const device = town.device({ rates: noRates });
    for (let n = 0; n < 2; n++) await assertRefused(reason, () => device.show(OLD));
    assert.equal(await local(device), 0);
    assert.ok((await states(device)).every((state) => state === "NEW"));
  }
});

test("a report is sent byte for byte until it is taken", async () => {
  const town = await Town.open(), device = town.device();
  await device.show(OLD);
  town.lose = (kind) => kind === "report" && "after";
  assert.deepEqual(await device.sendReports(), { acked: 0, waiting: 1, refused: [] });
  town.lose = () => false;
  town.verdict = "UNKNOWN_MENU";
  assert.deepEqual(await at(device, TIMES.expires + 299).sendReports(), { acked: 0, waiting: 1, refused: ["UNKNOWN_MENU"] });
  town.verdict = null;
  assert.equal((await device.sendReports()).acked, 1);
  assert.equal(new Set(town.sent).size, 1);
  assert.equal(town.reports.size, 1);
});

test("a report that came too late is closed, one whose answer was lost is not", async () => {
  for (const arrived of [true, false]) {
    const town = await Town.open(), device = town.device();
    await device.show(OLD);
    town.lose = (kind) => kind === "report" && (arrived ? "after" : "before");
    await device.sendReports();
    town.lose = () => false;
    town.verdict = "EXPIRED";
    const sent = await at(device, TIMES.expires).sendReports();
    assert.deepEqual([sent.acked, sent.waiting, sent.refused], [arrived ? 1 : 0, 0, ["EXPIRED"]]);
    assert.ok((await states(device)).includes(arrived ? "ACKED" : "CLOSED"));
  }
});

test("what is unknown counts in full: small cohorts, late sizes, reports of one's own", async () => {
  const town = await Town.open();
  await town.openEpoch(2, { opens: 10_500, closes: 20_000, expires: 30_000 }, { smallestCohort: 50 });
  const device = town.device();
  for (let n = 0; n < 2; n++) await device.show(OLD);
  await device.show(NEW);
  await device.sendReports();
  const lost = [...town.reports.keys()].find((nonce) => town.reports.get(nonce).menuId[0] !== [...town.reports.values()].at(-1).menuId[0]);
  const kept = town.reports.get(lost);
  town.reports.delete(lost);
  await town.bill(40_000);
  town.reports.set(lost, kept);
  const settled = await device.settle();
  assert.equal(settled.bySize + settled.inFull + settled.waiting, 3);
  assert.equal(settled.waiting, 1);
  const cohorts = (await device.account()).choices.map(({ cohort }) => cohort).filter(Boolean).sort();
  assert.deepEqual(cohorts, [40_000, 40_001], "one of this device's own is not known to have left");
  assert.deepEqual(await at(device, TIMES.expires + 86_400).settle(), { bySize: 0, inFull: 1, waiting: 0 });

  const small = town.device();
  await small.show(OLD);
  await small.sendReports();
  await town.bill(10);
  assert.deepEqual(await small.settle(), { bySize: 0, inFull: 1, waiting: 0 });
});

test("a context whose batches were small takes the public lane", async () => {
  const town = await Town.open(), ad = await town.device().show(OLD);
  for (const reports of [100, 120, 3]) town.batches.push({ epoch: 1, data: await town.statement(ad.menuId, 1, reports) });
  const lane = async (smallestCohort) => (await town.device({ smallestCohort }).show(OLD)).lane;
  assert.deepEqual([await lane(100), await lane(101)], ["personal", "public"], "nine in ten were among 100");
  town.lose = (kind) => kind === "statements" && "before";
  assert.equal(await lane(101), "personal", "nothing is known");
});

test("caps and exclusions are kept within the choice", async () => {
  const town = await Town.open({ caps: [{ impressions: 1, seconds: 100 }] }), device = town.device({ excluded: ["IAB3"] });
  const ad = await device.show(OLD);
  const [showing] = await device.journal.all("s");
  assert.deepEqual([showing.campaign, showing.at, showing.until], [ad.campaign, town.now, town.now + 100]);
  await at(device, town.now + 100).forget();
  assert.deepEqual(await device.journal.all("s"), []);

  for (const settings of [{ excluded: ["IAB2"] }, {}]) {
    const other = town.device({ limits: { ...LIMITS, local: 2000, central: 2000 }, prefetch: 16, ...settings });
    await other.journal.commit([], null, settings.excluded ? [] : [{ key: "sx", campaign: 2, at: town.now, until: town.now + 50 }]);
    const { plan } = await other.look(OLD), low = Number(plan.low) / 2 ** 64;
    let shown = 0;
    for (let n = 0; n < 80; n++) shown += (await other.show(OLD)).index === 2;
    assert.ok(shown / 80 < low + FALSE_ALARM && low + FALSE_ALARM < Number(plan.high) / 2 ** 64, `${shown} of 80, expected ${low} of each`);
  }
});

test("clicks stay here, and are kept only for who lets the device count", async () => {
  const town = await Town.open(), counting = town.device({ statistics: true }), silent = town.device();
  const ad = await counting.show(OLD), other = await silent.show(OLD);
  const before = town.calls.length;
  assert.deepEqual([await counting.noteClick(ad), await silent.noteClick(other)], [true, false]);
  assert.equal(town.calls.length, before);
  const [event] = await counting.journal.all("e");
  assert.deepEqual([event.context, event.campaign, event.second, event.clicked], [OLD, ad.campaign, town.now, true]);
  const withdrawn = town.device({ journal: counting.journal });
  await withdrawn.recover();
  assert.deepEqual(await withdrawn.journal.all("e"), []);
});

test("erasing leaves what was spent, and the device goes on", async () => {
  const town = await Town.open(), device = town.device();
  await device.show(OLD);
  assert.equal(await device.erase(), 2);
  assert.equal(await local(device), TWO);
  assert.equal((await device.show(OLD)).lane, "personal");
  assert.equal((await device.sendReports()).acked, 1);
});

test("other parties get what was shown and nothing that was not", async () => {
  const town = await Town.open(), device = town.device(), ad = await device.choose(OLD);
  await device.show(OLD);
  const proxy = { ...town.settings.proxy, signing: "00".repeat(32) }, other = town.device({ journal: device.journal, proxy });
  const found = await other.recover();
  assert.deepEqual([found.pending.length, found.closed, found.sent.acked], [0, 1, 1]);
  await assertRefused("CLOSED", () => other.confirmShown(ad));
});

test("two tabs at once never draw twice for a token, nor spend an epsilon twice", async () => {
  const town = await Town.open(), rows = memoryRows();
  const tabs = [1, 2, 3].map(() => town.device({ journal: new Journal(rows) }));
  const shown = (await Promise.all(tabs.map((tab) => Promise.all([1, 2].map(() => tab.show(OLD)))))).flat();
  const drawn = new Map(shown.map((ad) => [hex(ad.nonce), ad.index]));
  for (const ad of shown) assert.equal(drawn.get(hex(ad.nonce)), ad.index);
  assert.equal(await local(tabs[0]), TWO * drawn.size);
  await Promise.all(tabs.map((tab) => tab.sendReports()));
  assert.equal(town.reports.size, drawn.size);
  assert.equal(new Set(town.sent).size, drawn.size);
});

test("the channel: no cookies, no referrer, no cache, refusals by name, three tries", async () => {
  const asked = [], told = [], answers = [];
  const before = globalThis.fetch;
  globalThis.fetch = async (url, options) => {
    asked.push([url, options]);
    const next = answers.shift();
    if (next instanceof Error) throw next;
    return next;
  };
  try {
    const channel = httpChannel("http://localhost:1", (message) => told.push(message)), nonce = new Uint8Array(32), report = new Uint8Array([1]);
    answers.push(new Response("", { status: 503 }), new TypeError("no network"), new Response(null, { status: 201 }));
    assert.equal(await channel.report(report, nonce), null);
    assert.equal(asked.length, 3);
    const [url, { signal, ...options }] = asked[0];
    assert.equal(url, `http://localhost:1/billing/reports/${"00".repeat(32)}`);
    assert.ok(signal instanceof AbortSignal);
    assert.deepEqual(options, { method: "PUT", body: report, credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store", redirect: "error" });
    assert.deepEqual(told.map(({ kind, bytes }) => [kind, bytes]), Array(3).fill(["report", report]));
    answers.push(new Response('{"type": "tacit:bill-none-left", "title": "x"}', { status: 409 }));
    await assertRefused("NONE_LEFT", () => channel.head());
    answers.push(new Response("<html>", { status: 404 }));
    await assertRefused("UNREACHABLE", () => channel.head());
    answers.push(new TypeError(), new TypeError(), new Response("", { status: 429 }));
    await assertRefused("UNREACHABLE", () => channel.head());
    answers.push(new Response(null, { status: 204 }));
    assert.equal(await channel.statement(nonce), null);
  } finally {
    globalThis.fetch = before;
  }
  for (const url of ["http://proxy.example", "ftp://localhost", "http://localhost.example:1", "//localhost"]) await assertRefused("MALFORMED", () => httpChannel(url));
});
