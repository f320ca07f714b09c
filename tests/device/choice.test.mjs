import assert from "node:assert/strict";
import { test } from "node:test";
import { barredCampaigns, choose, deviceScores, entryIndex, isCapped, pmf } from "../../device/choice.js";
import { topChoice } from "../../device/plans.js";
import { menuOf, reasonOf, vectors } from "./choice_vectors.mjs";

test("words lead to candidates as in Python", () => {
  for (const { law: [micros, kept, top], scores, weights, words, chosen } of vectors.choices) {
    const plan = topChoice(kept, top, micros);
    assert.deepEqual(pmf(plan, scores).map(String), weights);
    assert.deepEqual(words.map((word) => choose(plan, scores, BigInt(word))), chosen);
  }
});

test("scores by the device's rates are Python's to the last bit", () => {
  for (const { menu, rates, scores, barred, barred_scores: without, indices } of vectors.scores) {
    const read = menuOf(menu);
    assert.deepEqual(deviceScores(read, rates), scores);
    assert.deepEqual(deviceScores(read, rates, new Set(barred)), without);
    assert.deepEqual(scores.map((_, rank) => entryIndex(read, rank)), indices);
  }
});

test("scores that are no numbers, and rates of other candidates, are refused", async () => {
  const plan = topChoice(2, 1, 1_000_000), menu = menuOf(vectors.scores[0].menu);
  for (const wrong of [NaN, Infinity, "1", null]) {
    assert.equal(await reasonOf(() => choose(plan, [1, wrong], 0n)), "MALFORMED");
  }
  assert.equal(await reasonOf(() => choose(plan, [1], 0n)), "MALFORMED");
  assert.equal(await reasonOf(() => deviceScores(menu, [0.1])), "MALFORMED");
});

test("caps and exclusions bar as in Python", () => {
  const { campaigns, showings, barred } = vectors.caps;
  const seen = showings.map(([campaign, at]) => ({ campaign, at }));
  for (const [now, excluded, expected] of barred) {
    assert.deepEqual([...barredCampaigns({ campaigns }, seen, excluded, now)].sort(), expected);
  }
  assert.equal(isCapped({ caps: [{ impressions: 2, seconds: 60 }] }, [100, 130], 159), true);
  assert.equal(isCapped({ caps: [{ impressions: 2, seconds: 60 }] }, [100, 130], 160), false);
});

const CHOICES = 100_000;
const FALSE_ALARM = 1e-9;

/** n KL(seen || chance): by Chernoff above ln(2 cells / alarm) with a chance of at most alarm / cells. */
function divergence(seen, chance) {
  const q = seen / CHOICES;
  if (chance === 0 || chance === 1) return q === chance ? 0 : Infinity;
  const part = (a, b) => (a === 0 ? 0 : a * Math.log(a / b));
  return CHOICES * (part(q, chance) + part(1 - q, 1 - chance));
}

/** Whether 100,000 choices by `drawn` are told apart from the law of `said`. */
function isToldApart(drawn, said, scores) {
  const counts = scores.map(() => 0);
  for (let each = 0; each < CHOICES; each++) counts[choose(drawn, scores)]++;
  const limit = Math.log((2 * scores.length) / FALSE_ALARM);
  return pmf(said, scores).some((weight, rank) => divergence(counts[rank], Number(weight) / 2 ** 64) > limit);
}

test("choices follow their exact law, with a false alarm in 1e9", () => {
  const scores = [0.3, 0.1, 0.9, 0.2, 0.5];
  for (const [kept, top, micros] of [[5, 2, 1_000_000], [3, 1, 3_000_000], [4, 2, 200_000]]) {
    const plan = topChoice(kept, top, micros);
    assert.equal(isToldApart(plan, plan, scores), false);
  }
});

test("slightly wrong weights are told apart", () => {
  const scores = [0.3, 0.1, 0.9, 0.2, 0.5], plan = topChoice(5, 2, 1_000_000);
  const moved = 2n ** 64n / 30n; // one of thirty, from the three others to the two favoured: 11 deviations for each of these
  const wrong = { ...plan, low: plan.low - moved / 3n, high: plan.high + moved / 2n, spare: 0n };
  assert.equal(isToldApart(wrong, plan, scores), true);
});
