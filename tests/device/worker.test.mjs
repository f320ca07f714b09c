/** A device behind messages: the calls that are taken, what a page is told, and the page's side without a worker. */
import assert from "node:assert/strict";
import test from "node:test";

import { unhex } from "../../device/bytes.js";
import { openTacit } from "../../device/tacit.js";
import { serveDevice } from "../../device/worker.js";
import { vectors } from "./choice_vectors.mjs";
import { NEW, OLD, Town, TWO } from "./town.mjs";

/** Let `fetch` reach a town's proxy for as long as `act` takes. */
async function reaching(town, act) {
  const before = globalThis.fetch, { hidden } = town, channel = town.channel(), now = Date.now;
  globalThis.fetch = async (url, { method, body } = {}) => {
    if (hidden) throw new TypeError("nobody is there");
    if (url === "/parties.json") return Response.json(town.settings);
    const [, kind, name] = /billing\/(\w+)\/?(\w*)/.exec(url);
    const call = { head: "head", offers: "offer", packs: "pack", reports: method === "PUT" ? "report" : "statement" }[kind];
    const given = { offer: [body], pack: [name && unhex(name)], report: [body, name && unhex(name)], statement: [name && unhex(name)] }[call] ?? [];
    const found = await channel[call](...given);
    return new Response(found, { status: found ? 200 : 204 });
  };
  Date.now = () => 1000 * town.now;
  try {
    return await act();
  } finally {
    globalThis.fetch = before;
    Date.now = now;
  }
}

function talk() {
  const answers = new Map(), messages = [];
  const serve = serveDevice(({ message, ...answer }) => (message ? messages.push(message) : answers.set(answer.id, answer)));
  let last = 0;
  const ask = async (call, ...args) => {
    await serve({ id: ++last, call, args });
    return structuredClone(answers.get(last)); // as a worker would post it
  };
  return { ask, messages };
}

test("calls of a fixed list, of a device that is open", async () => {
  const town = await Town.open();
  await reaching(town, async () => {
    const { ask } = talk();
    for (const call of ["show", "account", "nothing", "constructor", "__proto__", "toString", undefined]) {
      const { ok, error } = await ask(call, OLD);
      assert.deepEqual([ok, error.reason], [false, "MALFORMED"]);
    }
    assert.equal((await ask("open", { settings: { ...town.settings, version: 2 } })).error.reason, "MALFORMED");
    assert.deepEqual((await ask("open", { settings: "/parties.json" })).value, { vendor: null, demonstration: false });
    assert.equal((await ask("open", { settings: town.settings })).ok, false, "a second time, with other limits say");
    assert.equal((await ask("constructor")).ok, false);
  });
});

test("a page is told what it must show, and nothing by which a report is known again", async () => {
  const town = await Town.open();
  await reaching(town, async () => {
    const { ask, messages } = talk();
    await ask("open", { settings: town.settings, profile: { clicks: [[2, OLD]], levels: [[2], [1]] } });
    await ask("setConsent", true);
    const { value: ad } = await ask("show", OLD);
    assert.deepEqual(Object.keys(ad).sort(), ["ad", "campaign", "creatives", "disclosed", "epoch", "epsilonMicros", "lane", "priceMicros"]);
    assert.deepEqual([ad.lane, ad.epsilonMicros], ["personal", TWO]);
    assert.equal((await ask("confirmShown", 7)).ok, false);
    assert.equal((await ask("confirmShown", ad.ad)).ok, true);
    assert.equal((await ask("sendReports")).value.acked, 1);
    assert.deepEqual(new Set(messages.map(({ kind }) => kind)), new Set(["head", "offer", "pack", "report"]));
    assert.equal(messages.at(-1).bytes.length, 434);
    const { value: account } = await ask("account");
    assert.deepEqual([account.localMicros, account.choices], [TWO, 1]);
    assert.equal((await ask("pmf", OLD)).error.reason, "MALFORMED", "it would tell of the profile");
    assert.equal((await ask("plan", OLD)).value.entries.length, 3);
    const again = (await ask("show", NEW)).value;
    await ask("putBack", again.ad);
    const same = (await ask("show", NEW)).value;
    assert.deepEqual({ ...again, ad: 0 }, { ...same, ad: 0 }, "not drawn again");
    assert.equal((await ask("erase")).value > 0, true);
    assert.equal((await ask("account")).value.localMicros, 2 * TWO, "what was spent stays spent");
    town.now += 400 * 86_400;
    assert.equal((await ask("account")).value.localMicros, 0, "in another window");
  });
});

test("a profile may be a model that tacit exported, and what it reads", async () => {
  const town = await Town.open(), [{ file }] = Object.values(vectors.models), [row] = vectors.rows;
  town.settings.demonstration = true;
  await reaching(town, async () => {
    const { ask } = talk(), model = new Uint8Array(Buffer.from(file, "base64"));
    await ask("open", { settings: town.settings, profile: { clicks: Array(50).fill([2, OLD]), levels: [[2]] } });
    await ask("setConsent", true);
    const before = (await ask("pmf", OLD)).value, bids = (await ask("plan", OLD)).value.entries.map(({ bidMicros }) => bidMicros);
    assert.equal((await ask("setProfile", { model, row })).ok, true);
    const after = (await ask("pmf", OLD)).value;
    assert.ok(Math.abs(after.reduce((sum, each) => sum + each, 0) - 1) < 1e-9);
    const favoured = (chances) => chances.indexOf(Math.max(...chances));
    assert.deepEqual([favoured(before), favoured(after)], [1, favoured(bids)], "the model says the same of all: the best bid wins");
    assert.notEqual(favoured(bids), 1);
    assert.equal((await ask("setProfile", { model, row: {} })).ok, true);
    assert.equal((await ask("pmf", OLD)).error.reason, "MALFORMED", "what the model reads is missing");
    assert.equal((await ask("setProfile", { model: model.slice(0, 9), row })).error.reason, "MALFORMED");
  });
});

test("a demonstration shows how likely each candidate is, by the profile", async () => {
  const town = await Town.open();
  town.settings.demonstration = true;
  await reaching(town, async () => {
    const { ask } = talk(), liking = (campaign) => ({ clicks: Array(50).fill([campaign, OLD]), levels: [[2]] });
    await ask("open", { settings: town.settings, profile: liking(3) });
    await ask("setConsent", true);
    const first = (await ask("pmf", OLD)).value;
    assert.ok(Math.abs(first.reduce((sum, each) => sum + each, 0) - 1) < 1e-9);
    assert.equal(first.indexOf(Math.max(...first)), 2);
    await ask("setProfile", liking(2));
    const second = (await ask("pmf", OLD)).value;
    assert.equal(second.indexOf(Math.max(...second)), 1);
  });
});

test("without workers the page's side has the device in its own process", async () => {
  const town = await Town.open(), told = [];
  await reaching(town, async () => {
    const tacit = await openTacit({ settings: "/parties.json", context: OLD, onMessage: (message) => told.push(message) });
    const ad = await tacit.choose(OLD);
    assert.equal(ad.lane, "public", "consent is off");
    await tacit.confirmShown(ad.ad);
    await tacit.setConsent(true);
    assert.equal((await tacit.choose(OLD)).lane, "personal");
    await tacit.setConsent("yes");
    assert.equal((await tacit.choose(OLD)).lane, "public");
    assert.ok(told.length);
    await assert.rejects(() => tacit.pmf(OLD), { reason: "MALFORMED" });
  });
});

test("who cannot reach the proxy is told so", async () => {
  const town = await Town.open();
  const { ask } = talk();
  await reaching(town, () => ask("open", { settings: town.settings }));
  town.hidden = true;
  await reaching(town, async () => assert.equal((await ask("show", OLD)).error.reason, "UNREACHABLE"));
});

