/** The vectors of plans and choices, with menus as `readMenu` gives them. */
import { readFileSync } from "node:fs";

export const vectors = JSON.parse(readFileSync(new URL("../vectors/device_choice_v1.json", import.meta.url), "utf8"));

export function menuOf({ mechanism, epsilon, entries, prior, floor, finer, node, rule, nothing }) {
  const [levels, values] = node ?? [[1], ["Food"]];
  return {
    id: new Uint8Array(32), epoch: 1, lane: "personal", node: { levels, values }, rule: rule ?? "second price per impression",
    mechanism, epsilonMicros: epsilon, smallestCohort: 1, reserveMicros: 0, ctrFloor: floor ?? 0,
    nothingRank: nothing?.[0] ?? null, nothingMicros: nothing?.[1] ?? null, prior: prior ?? {},
    entries: entries.map(([campaign, priceMicros, bidMicros, rate]) => ({ campaign, priceMicros, bidMicros, rate, setter: -1 })),
    finer: (finer ?? []).map(([levels, values, rates]) => ({ node: { levels, values }, rates: new Map(rates) })),
  };
}

/** What a function refuses with; fails where it does not. */
export async function reasonOf(act) {
  try {
    await act();
  } catch (refusal) {
    return refusal.reason;
  }
  throw new Error("expected it to be refused");
}
