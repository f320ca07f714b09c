/** The journal's rules, on rows in memory: what follows what, all or none, and what is forgotten. (IndexedDB: test_browser.py.) */
import assert from "node:assert/strict";
import test from "node:test";

import { Account } from "../../device/account.js";
import { hex } from "../../device/bytes.js";
import { Journal, memoryRows, openJournal } from "../../device/journal.js";
import { assertRefused } from "./support.mjs";

const LIMITS = { local: 6, central: 6, perChoice: 2, delta: 1e-6, windowSeconds: 86_400 };
const STATES = ["NEW", "ISSUED", "CHOSEN", "SHOWN", "ACKED", "SETTLED", "CLOSED"];
const FOLLOWS = { NEW: ["ISSUED"], ISSUED: ["CHOSEN"], CHOSEN: ["SHOWN", "CLOSED"], SHOWN: ["ACKED", "CLOSED"], ACKED: ["SETTLED"], SETTLED: [], CLOSED: [] };
const HELD = { NEW: ["blinded", "inverse", "secret"], ISSUED: ["secret", "token"], CHOSEN: ["secret", "token"], SHOWN: ["report"], ACKED: [], SETTLED: [], CLOSED: [] };
const SECRETS = ["secret", "blinded", "inverse", "token", "report"];
const WAYS = { NEW: ["NEW"], ISSUED: ["NEW", "ISSUED"], CHOSEN: ["NEW", "ISSUED", "CHOSEN"] };
for (const [state, before] of [["SHOWN", "CHOSEN"], ["ACKED", "SHOWN"], ["SETTLED", "ACKED"], ["CLOSED", "CHOSEN"]]) WAYS[state] = [...WAYS[before], state];

const bytes = (fill, size = 32) => new Uint8Array(size).fill(fill);
const record = (state, number = 1, more = {}) => ({
  state, nonce: bytes(number), menuId: bytes(7), epoch: 1, expires: 1000, smallestCohort: 3, index: 2,
  ...Object.fromEntries(SECRETS.map((name) => [name, bytes(9)])), ...more,
});
const journalOf = (rows) => new Journal(memoryRows(rows));

async function bring(journal, state, number, more) {
  for (const each of WAYS[state]) await journal.commit([record(each, number, more)]);
}

test("every state follows those that it may, and no other", async () => {
  for (const before of [undefined, ...STATES]) {
    for (const state of STATES) {
      const journal = journalOf();
      if (before) await bring(journal, before);
      const kept = await journal.all("i");
      if (before ? FOLLOWS[before].includes(state) : state === "NEW") {
        await journal.commit([record(state)]);
        assert.equal((await journal.all("i"))[0].state, state);
      } else {
        await assertRefused("MOVED_ON", () => journal.commit([record(state)]));
        assert.deepEqual(await journal.all("i"), kept);
      }
    }
  }
});

test("what a state no longer needs is not kept", async () => {
  for (const state of STATES) {
    const journal = journalOf();
    await bring(journal, state);
    const [kept] = await journal.all("i");
    assert.deepEqual(SECRETS.filter((name) => name in kept).sort(), HELD[state]);
  }
});

test("records, account and other rows are kept together or not at all", async () => {
  const journal = journalOf(), account = new Account(LIMITS).reserve(1_000_000, 5);
  await bring(journal, "ISSUED", 1);
  const row = { key: "s1", campaign: 4, until: 9 };
  await assertRefused("MOVED_ON", () => journal.commit([record("CHOSEN", 1), record("CHOSEN", 2)], account, [row]));
  await assertRefused("MOVED_ON", () => journal.commit([record("CHOSEN", 1)], account.reserve(1, 5), [row]));
  assert.equal((await journal.all("i"))[0].state, "ISSUED");
  assert.equal(await journal.get("account"), undefined);
  assert.deepEqual(await journal.all("s"), []);
  await journal.commit([record("CHOSEN", 1)], account, [row]);
  assert.equal((await journal.get("account")).turn, 1);
  assert.deepEqual(await journal.all("s"), [row]);
});

test("an account is taken one change after another, and none twice", async () => {
  const journal = journalOf(), first = new Account(LIMITS).reserve(1, 5), other = new Account(LIMITS).reserve(2, 5);
  await journal.commit([], first);
  await assertRefused("MOVED_ON", () => journal.commit([], first));
  await assertRefused("MOVED_ON", () => journal.commit([], other));
  await journal.commit([], first.reserve(3, 5));
  assert.equal(new Account(LIMITS, await journal.get("account")).localMicros, 4);
});

test("of two that commit at once one is refused", async () => {
  const journal = journalOf();
  await bring(journal, "ISSUED");
  const found = await Promise.allSettled([1, 2, 3].map((index) => journal.commit([record("CHOSEN", 1, { index })])));
  assert.deepEqual(found.map(({ status }) => status), ["fulfilled", "rejected", "rejected"]);
  assert.equal((await journal.all("i"))[0].index, 1);
});

test("impressions by state and menu", async () => {
  const journal = journalOf();
  await bring(journal, "NEW", 1);
  await bring(journal, "CHOSEN", 2);
  await bring(journal, "CHOSEN", 3, { menuId: bytes(8) });
  assert.equal((await journal.impressions(["NEW", "CHOSEN"])).length, 3);
  assert.deepEqual((await journal.impressions(["CHOSEN"], bytes(8))).map(({ nonce }) => hex(nonce)), [hex(bytes(3))]);
});

test("the first head of an epoch is the only one", async () => {
  const rows = new Map(), head = { epoch: 4, expires: 9, body: bytes(1), data: bytes(1, 64) };
  await journalOf(rows).keepHead(head);
  const again = journalOf(rows); // after a restart
  await again.keepHead({ ...head, data: bytes(2, 64) });
  assert.deepEqual((await again.get("h4")).data, head.data);
  await assertRefused("CONFLICT", () => again.keepHead({ ...head, body: bytes(2) }));
  await again.keepHead({ ...head, epoch: 5, body: bytes(2) });
});

test("what is over is forgotten, what is owed something is not", async () => {
  const journal = journalOf();
  for (const [at, state] of STATES.entries()) await bring(journal, state, at + 1);
  await bring(journal, "SETTLED", 20, { epoch: 2 });
  await bring(journal, "SETTLED", 21, { epoch: 3, expires: 2000 });
  for (const [epoch, expires] of [[1, 1000], [2, 1000], [3, 2000]]) {
    await journal.keepHead({ epoch, expires, body: bytes(epoch), data: bytes(epoch) });
    await journal.commit([], null, [{ key: `m${epoch}`, epoch, expires }]);
  }
  await journal.commit([], new Account(LIMITS).reserve(1, 5), [{ key: "s1", until: 50 }, { key: "s2", until: 51 }, { key: "e1", until: 50 }]);
  assert.equal(await journal.forget(50, 1000), 0);
  assert.equal(await journal.forget(50, 1001), 6);
  assert.deepEqual((await journal.all("i")).map(({ state }) => state).sort(), ["ACKED", "SETTLED", "SHOWN"]);
  assert.deepEqual((await journal.all("h")).map(({ epoch }) => epoch), [1, 3]);
  assert.deepEqual((await journal.all("m")).map(({ epoch }) => epoch), [1, 3]);
  assert.deepEqual([...(await journal.all("s")), ...(await journal.all("e"))].map(({ key }) => key), ["s2"]);
});

test("erasing leaves the account and heads alone", async () => {
  const rows = new Map(), journal = journalOf(rows);
  await bring(journal, "SHOWN", 1);
  await bring(journal, "NEW", 2);
  await journal.keepHead({ epoch: 1, expires: 9, body: bytes(1), data: bytes(1) });
  await journal.commit([], new Account(LIMITS).reserve(1, 5), [{ key: "m1" }, { key: "s1" }, { key: "e1" }, { key: "r1", events: [1] }]);
  assert.equal(await journal.erase(), 2);
  assert.deepEqual([...rows.keys()].sort(), ["account", "h1", "r1"]);
  assert.deepEqual(rows.get("r1"), { key: "r1" }, "that a round was answered, and nothing of what");
});

test("without IndexedDB a journal forgets", async () => {
  const journal = await openJournal();
  await bring(journal, "NEW");
  assert.equal((await (await openJournal()).all("i")).length, 0);
});
