// A worker that draws by the device's own law, many times, and tells nobody: nothing leaves it, so nothing is spent.

import { choose, deviceScores, pmf } from "/device/choice.js";
import { generalise } from "/device/contexts.js";
import { historyRates, withRequest } from "/device/models.js";
import { planMenu } from "/device/plans.js";

/** @typedef {{ id: number, menu: any, profile: any, context: string[], parties: any, draws: number }} Asked */

onmessage = async (/** @type {MessageEvent<Asked>} */ { data }) => {
  try {
    postMessage({ id: data.id, ...(await rehearse(data)) });
  } catch (problem) {
    postMessage({ id: data.id, trouble: problem instanceof Error ? problem.message : String(problem) });
  }
};

/** Scores, exact chances, and how often each candidate came. @param {Asked} asked */
async function rehearse({ menu, profile, context, parties, draws }) {
  const here = (/** @type {string[]} */ exact) =>
    generalise(parties.hierarchy, exact, parties.disclosure.levels);
  const { clicks, levels, strength, most } = profile;
  const history = clicks.reduce(
    (/** @type {any} */ before, /** @type {[number, string[]]} */ [ad, exact]) =>
      withRequest(before, ad, here(exact)),
    { levels, strength, most, requests: [] },
  );
  const plan = await planMenu(menu);
  const scores = deviceScores(menu, historyRates(history, menu, here(context)));
  const counts = scores.map(() => 0);
  if (!plan) {
    counts[0] = draws;
    return {
      plan: null,
      scores,
      counts,
      chances: scores.map((/** @type {number} */ _, /** @type {number} */ at) => Number(at === 0)),
    };
  }
  for (let each = 0; each < draws; each++) counts[choose(plan, scores)] += 1;
  const chances = pmf(plan, scores).map((/** @type {bigint} */ words) => Number(words) / 2 ** 64);
  return { plan: { kept: plan.kept, top: plan.top }, scores, counts, chances };
}
