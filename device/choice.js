/** Private choices by a planned law. */
import { demand } from "./bytes.js";

/** Entries in public order, with nothing (campaign -1) where it is one. */
export const candidates = ({ entries, nothingRank }) =>
  nothingRank === null ? entries : entries.toSpliced(nothingRank, 0, { campaign: -1, bidMicros: 0, rate: 0 });

/** Micros per impression by these rates; with a floor at least `above`, or at most `below`. */
export function scoresBy(menu, rates, above = -Infinity, below = Infinity) {
  const all = candidates(menu), least = Math.min(...all.map(({ bidMicros }) => bidMicros || Infinity));
  demand(rates.length === all.length, "a rate per candidate");
  return all.map(({ campaign, bidMicros: bid }, rank) => {
    const rate = rates[rank];
    if (campaign < 0) return menu.nothingMicros;
    if (!menu.ctrFloor) return bid * rate;
    return bid && rate >= menu.ctrFloor ? Math.max(bid * rate, above) : Math.min(Math.min(bid, least) * rate, below);
  });
}

/** The double beside one that is at least 0. */
function beside(number, step) {
  const bits = new BigInt64Array(new Float64Array([number]).buffer);
  bits[0] += BigInt(step);
  return number ? new Float64Array(bits.buffer)[0] : step * 5e-324;
}

/** Scores by the device's rates, 0 for barred campaigns; with a floor never equal to nothing's. @param {Set<number>} [barred] */
export function deviceScores(menu, rates, barred = new Set()) {
  const own = rates.map((rate, rank) => (barred.has(candidates(menu)[rank]?.campaign) ? 0 : rate));
  return scoresBy(menu, own, beside(menu.nothingMicros, 1), beside(menu.nothingMicros, -1));
}

/** How many of 2^64 words choose each candidate. Exactly `top` are favoured, whatever the scores. */
export function pmf({ kept, top, low, high, spare }, scores) {
  demand(scores.length >= kept && scores.every(Number.isFinite), "finite scores");
  const best = [...Array(kept).keys()].sort((a, b) => scores[b] - scores[a]).slice(0, top);
  return scores.map((_, rank) => (rank < kept ? (best.includes(rank) ? high : low) + BigInt(rank < spare) : 0n));
}

/** The public rank that is drawn. @param {bigint} [word] uniform below 2^64 */
export function choose(plan, scores, word = crypto.getRandomValues(new BigUint64Array(1))[0]) {
  let end = 0n;
  return pmf(plan, scores).findIndex((weight) => (end += weight) > word);
}

/** What is reported of a rank. */
export const entryIndex = ({ nothingRank }, rank) =>
  rank === nothingRank ? 0 : rank + (nothingRank === null || rank < nothingRank);

/** Whether showings reach a cap; those to come count, since clocks are set back. */
export const isCapped = ({ caps }, shown, now) =>
  caps.some(({ impressions, seconds }) => shown.filter((at) => at > now - seconds).length >= impressions);

/** Campaigns that are capped, or about what is excluded. @param {{campaign: number, at: number}[]} showings */
export const barredCampaigns = ({ campaigns }, showings, excluded, now) =>
  new Set(campaigns.filter(({ number, caps, categories }) =>
    categories.some((each) => excluded.some((out) => `${each}-`.startsWith(`${out}-`))) ||
    isCapped({ caps }, showings.filter(({ campaign }) => campaign === number).map(({ at }) => at), now),
  ).map(({ number }) => number));
