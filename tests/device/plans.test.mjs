import assert from "node:assert/strict";
import { createCipheriv, createHash } from "node:crypto";
import { test } from "node:test";
import { planMenu, topChoice } from "../../device/plans.js";
import { candidates, pmf } from "../../device/choice.js";
import { menuOf, reasonOf, vectors } from "./choice_vectors.mjs";

const WHOLE = 1n << 64n;

/** e^(micros / 10^6) between two fractions over 10^120: sums that are rounded down, and up. */
function power(micros) {
  const one = 10n ** 120n, bounded = BigInt(Math.min(micros, 7e8));
  let term = one, low = 0n, steps = 0n;
  while (term) {
    low += term;
    term = (term * bounded) / (1000000n * ++steps);
  }
  // Every term is below its true value by less than `steps` units times the terms behind it, which are at most e^epsilon.
  return { low, high: low + (low / one + 2n) * (steps + 2n) ** 2n, one };
}

/** Whether one / other <= e^epsilon for sure. */
function isWithin(one, other, { low, one: unit }) {
  return one * unit <= other * low;
}

test("every menu is planned as in Python", async () => {
  let several = 0;
  for (const { menu, plan } of vectors.plans) {
    const found = await planMenu(menuOf(menu));
    if (plan === null) {
      assert.equal(found, null);
      continue;
    }
    const [kept, top, low, high, spare, forecast] = plan;
    assert.deepEqual([found.kept, found.top, `${found.low}`, `${found.high}`, Number(found.spare)], [kept, top, low, high, spare]);
    assert.equal(found.epsilonMicros, menu.epsilon);
    assert.ok(Math.abs(found.forecast / forecast - 1) < 1e-9, `forecast ${found.forecast}, expected ${forecast}`);
    several += top > 1;
  }
  assert.ok(vectors.plans.length >= 60 && several > 5);
});

test("what is no menu is refused as malformed", async () => {
  for (const [name, menu] of Object.entries(vectors.bad_plans)) {
    assert.equal(await reasonOf(() => planMenu(menuOf(menu))), "MALFORMED", name);
  }
});

test("floors are not planned here, and say so, unless nothing private is read", async () => {
  const worth = vectors.plans.find(({ plan }) => plan).menu;
  assert.equal(await reasonOf(() => planMenu(menuOf({ ...worth, mechanism: "floors" }))), "UNSUPPORTED");
  const alone = { ...worth, entries: worth.entries.slice(0, 1), prior: undefined, nothing: undefined, floor: 0 };
  assert.equal(await planMenu(menuOf({ ...alone, mechanism: "floors" })), null);
});

test("the public lane and epsilon 0 read nothing private", async () => {
  const menu = menuOf(vectors.plans.find(({ plan }) => plan).menu);
  assert.equal(await planMenu({ ...menu, lane: "public", mechanism: "public" }), null);
  assert.equal(await planMenu({ ...menu, epsilonMicros: 0 }), null);
});

test("weights are Python's to the last unit", () => {
  for (const [micros, kept, top, low, high, spare] of vectors.weights) {
    const law = topChoice(kept, top, micros);
    assert.deepEqual([`${law.low}`, `${law.high}`, Number(law.spare)], [low, high, spare], `epsilon ${micros}, ${kept}, ${top}`);
  }
});

test("no law favours by more than e^epsilon, by all sets that can be favoured", async () => {
  const plans = [];
  for (const { menu, plan } of vectors.plans) {
    if (plan) plans.push([await planMenu(menuOf(menu)), candidates(menuOf(menu)).length]);
  }
  for (const micros of [1, 10, 1000, 100_000, 2_000_000, 50_000_000]) plans.push([topChoice(6, 2, micros), 7]);
  for (const [plan, size] of plans) {
    const bound = power(plan.epsilonMicros), least = Array(size).fill(null), most = Array(size).fill(null);
    for (const favoured of subsets(plan.kept, plan.top)) {
      const scores = Array.from({ length: size }, (_, rank) => Number(favoured.includes(rank)));
      const weights = pmf(plan, scores);
      assert.equal(weights.reduce((all, each) => all + each), WHOLE);
      weights.forEach((weight, rank) => {
        if (least[rank] === null || weight < least[rank]) least[rank] = weight;
        if (most[rank] === null || weight > most[rank]) most[rank] = weight;
      });
    }
    for (let rank = 0; rank < size; rank++) {
      if (rank >= plan.kept) assert.equal(most[rank], 0n);
      else assert.ok(isWithin(most[rank], least[rank], bound), `epsilon ${plan.epsilonMicros}, rank ${rank}`);
    }
    // And no smaller low weight would do: one word less and the ratio is passed.
    const rest = BigInt(plan.kept - plan.top), many = BigInt(plan.top), lower = plan.low - 1n;
    const { high, one } = bound;
    if (lower > 0n) assert.ok((WHOLE - rest * lower) * one > many * lower * high, `epsilon ${plan.epsilonMicros} is spent`);
  }
});

test("the check of the ratio catches a law that favours too much", () => {
  for (const micros of [1, 2_000_000, 50_000_000]) {
    const law = topChoice(3, 1, micros), bound = power(micros);
    assert.ok(isWithin(law.high, law.low, bound));
    assert.ok(!isWithin(law.high + 2n, law.low - 1n, bound), "two words more for one less");
  }
});

/** Sets of `top` among `kept`: all of them where there are few, else all windows and the first thousand. */
function subsets(kept, top) {
  const found = [];
  const extend = (chosen, from) => {
    if (found.length >= 1000) return;
    if (chosen.length === top) return void found.push(chosen);
    for (let next = from; next < kept; next++) extend([...chosen, next], next + 1);
  };
  extend([], 0);
  for (let first = 0; first + top <= kept; first++) found.push(Array.from({ length: top }, (_, at) => first + at));
  return found;
}

test("the streams that order scenarios are told apart as doubles, for every place of a menu", () => {
  for (let place = 0; place <= 250; place++) {
    const seed = `tacit simulation, key 0, seed text planning scenarios, candidate ${place}`;
    const cipher = createCipheriv("aes-256-ctr", createHash("sha256").update(seed).digest(), Buffer.alloc(16));
    const words = new BigUint64Array(new Uint8Array(cipher.update(Buffer.alloc(8 * 1024))).buffer);
    assert.equal(new Set(Array.from(words.slice(0, 512), Number)).size, 512);
    assert.ok(words.every((word) => Number(word) < 2 ** 63 === word < 2n ** 63n));
  }
});

test("twenty candidates are planned within 10 ms", async () => {
  const { menu } = vectors.plans.find(({ menu, plan }) => menu.entries.length === 20 && plan);
  const learnt = vectors.plans.find(({ menu }) => menu.prior?.law === "learnt").menu;
  for (const [name, asked] of [["default", { ...menu, prior: undefined }], ["learnt", { ...menu, prior: learnt.prior }]]) {
    const spent = []; // processor time: others may use this machine, too
    for (let round = 0; round < 25; round++) {
      const start = process.cpuUsage();
      await planMenu(menuOf(asked));
      const { user, system } = process.cpuUsage(start);
      spent.push((user + system) / 1000);
    }
    const best = Math.min(...spent);
    assert.ok(best < 10, `${name}: ${best.toFixed(1)} ms`);
  }
});
