/** What a device's choices have told: locally exactly as in Python, centrally never less than there. */
import assert from "node:assert/strict";
import test from "node:test";

import { Account } from "../../device/account.js";
import { assertRefused, readVectors } from "./support.mjs";

const { limits: LIMITS, lives, centrals, bad_limits: badLimits } = readVectors("device_account_v1");
const TWO = 2_000_000;

function step(account, { do: name, micros, now, found, limits }) {
  if (name === "reserve") return account.reserve(micros, now);
  if (name === "settle") return account.settle(found);
  return new Account(limits, account.toJSON());
}

for (const [name, steps] of Object.entries(lives)) {
  test(`a life as in Python: ${name}`, async () => {
    let account = new Account(LIMITS);
    for (const said of steps) {
      if (said.do === "reserve") assert.equal(account.affords(said.micros, said.now), said.affords);
      if (said.taken) account = step(account, said);
      else await assertRefused(said.do === "reserve" ? "SPENT" : "MALFORMED", () => step(account, said));
      assert.deepEqual([account.turn, account.window ?? null, account.localMicros], [said.turn, said.window, said.local_micros]);
      assert.ok(account.centralMicros >= said.central_micros && account.centralMicros <= account.localMicros);
      account = new Account(account.limits, structuredClone(account.toJSON())); // as a journal keeps it
    }
  });
}

const accountOf = (delta, choices) => new Account({ ...LIMITS, delta }, { window: 0, choices });

test("the central count is never below Python's, nor above the local one", () => {
  let smaller = 0;
  for (const { delta, choices, local_micros: local, central_micros: central } of centrals) {
    const account = accountOf(delta, choices.map(({ cohort, ...each }) => ({ ...each, cohort: cohort ?? undefined })));
    assert.equal(account.localMicros, local);
    assert.ok(account.centralMicros >= central, `expected at least ${central}, got ${account.centralMicros}`);
    assert.ok(account.centralMicros <= local);
    smaller += account.centralMicros < local;
  }
  assert.ok(smaller > 30, `expected cohorts to hide something, got ${smaller}`);
});

/** Theorem 3.1 of arXiv 2012.12803, spelled as it is printed. */
function theorem(e0, n, delta) {
  assert.ok(e0 <= Math.log(n / (16 * Math.log(2 / delta))));
  const first = (8 * Math.sqrt(Math.exp(e0) * Math.log(4 / delta))) / Math.sqrt(n), second = (8 * Math.exp(e0)) / n;
  return Math.log(1 + ((Math.exp(e0) - 1) / (Math.exp(e0) + 1)) * (first + second));
}

test("one batch is the theorem's, and what stands for the end of Python's orders", () => {
  const rest = (-Math.log(1e-6) - 7.9) * 977;
  for (const [micros, cohort] of [[1_000_000, 5_000], [2_000_000, 40_000], [500_000, 1_000_000]]) {
    const expected = 1e6 * theorem(micros / 1e6, cohort, 1e-6) + rest;
    const got = accountOf(1e-6, [{ micros, cohort, batch: "a" }]).centralMicros;
    assert.ok(Math.abs(got - expected) <= 1, `expected ${expected}, got ${got}`);
  }
});

test("deltas are shared by settled choices, sizes by those of one batch", () => {
  const rest = (-Math.log(1e-6) - 7.9) * 977;
  const two = (first, second) => accountOf(1e-6, [{ micros: TWO, cohort: 40_000, batch: first }, { micros: TWO, cohort: 40_000, batch: second }]);
  const apart = 2e6 * theorem(2, 40_000, 5e-7) + rest, together = 2e6 * theorem(2, 20_000, 5e-7) + rest;
  assert.ok(Math.abs(two("a", "b").centralMicros - apart) <= 1);
  assert.ok(Math.abs(two("a", "a").centralMicros - together) <= 1);
  const full = accountOf(1e-6, [{ micros: TWO, cohort: 40_000, batch: "a" }, { micros: TWO }]);
  assert.ok(Math.abs(full.centralMicros - (TWO + 1e6 * theorem(2, 40_000, 1e-6) + rest)) <= 1);
});

test("the central count never falls with another choice, more epsilon or a smaller cohort", () => {
  const central = (...choices) => accountOf(1e-6, choices.map(([micros, cohort], at) => ({ micros, cohort, batch: `${at}` }))).centralMicros;
  for (const micros of [10_000, 400_000, 1_000_000, 2_000_000]) {
    let last = 0;
    for (const cohort of [10_000_000, 100_000, 3_000, 900, 500, 100, 1, undefined]) {
      const found = central([micros, cohort]);
      assert.ok(found >= last && central([micros + 1000, cohort]) >= found && central([micros, cohort], [micros, 5_000]) >= found);
      last = found;
    }
    assert.equal(last, micros);
  }
});

test("the central limit holds, and a signed size frees it", async () => {
  const limits = { ...LIMITS, local: 9, central: 5 };
  let account = new Account(limits).reserve(TWO, 5).reserve(TWO, 6);
  assert.equal(account.affords(TWO, 7), false);
  assert.equal(account.affords(1_000_000, 7), true);
  await assertRefused("SPENT", () => account.reserve(TWO, 7));
  account = account.settle([{ micros: TWO, window: 0, cohort: 40_000, batch: "a" }]);
  assert.equal(account.localMicros, 2 * TWO);
  assert.ok(account.centralMicros < 3_000_000);
  account = account.reserve(TWO, 7);
  assert.equal(account.localMicros, 3 * TWO);
});

for (const [name, limits] of Object.entries(badLimits)) {
  test(`limits that are none: ${name}`, () => assertRefused("MALFORMED", () => new Account(limits)));
}

test("amounts that are none", async () => {
  const account = new Account(LIMITS);
  for (const micros of [-1, NaN, undefined, "1"]) await assertRefused("SPENT", () => account.reserve(micros, 5));
  assert.equal(account.reserve(0, 5), account);
});
