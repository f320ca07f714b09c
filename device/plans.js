/** Plans: by which law everybody chooses from a menu, from the menu alone. */
import { attempt, demand } from "./bytes.js";
import { candidates, scoresBy } from "./choice.js";
import { sha256 } from "./seals.js";

const COUNT = 1024; // scenarios
/** Keys of each law of a prior, with the most of a number. */
const LAWS = {
  contexts: { ratios: 0, weights: 0 }, favourite: { share: 1, strength: 1 }, "few-liked": { share: 1, times: 1000 },
  learnt: { group: 0, parts: 0, reports: 0 }, "log-laplace": { scale: 0.95 }, lognormal: { sigma: 10 }, mixture: { parts: 0 },
  ratios: { statement: 0, values: 0, weights: 0 }, "some-known": { share: 1, sigma: 10 },
};
const { exp, floor, max, min, sqrt } = Math;
const range = (count, make = Number) => [...Array(count).keys()].map(make);
const sum = (values) => values.reduce((all, each) => all + each, 0);
const mean = (values) => sum(values) / values.length;
const spread = (values, middle) => sqrt(mean(values.map((each) => (each - middle) ** 2)));
const round = (x) => Math.round(x) - (x % 2 === 0.5); // of two the even one
const isIn = (x, least = 5e-324, most = 1e308) => typeof x === "number" && x >= least && x <= most;
const areIn = (values) => values.every((each) => isIn(each, 0)) && isIn(sum(values));

const words = [], made = new Map();

/** What is public, made once. */
function once(name, make) {
  if (made.size > 4096) made.clear();
  return made.get(name) ?? made.set(name, make()).get(name);
}

const density = (x) => exp((-x * x) / 2) / sqrt(2 * Math.PI);

/** The normal's mass below x. */
function mass(x) {
  if (x * x > 72) return +(x > 0);
  let all = x;
  for (let n = 3, term = x; (term *= (x * x) / n) + all !== all; n += 2) all += term;
  return 0.5 + all * density(x);
}

/** Means of equally likely strata from the sums below, scaled to a mean of one. */
function strata(count, below) {
  const values = range(count, (at) => below(at + 1) - below(at)), all = mean(values);
  return values.map((each) => each / all);
}

function lognormal(sigma, count) {
  const sums = [0];
  sums[count] = 1;
  for (let at = count >> 1, x = 0; at; at--) {
    for (let n = 6; n--; ) x -= (mass(x) - at / count) / density(x); // outwards, Newton's steps go one way
    sums[at] = mass(x - sigma);
    sums[count - at] = mass(-x - sigma);
  }
  return strata(count, (at) => sums[at]);
}

/** Strata of values with weights. */
const stepped = (pairs, count) =>
  strata(count, (at) => {
    let left = (at / count) * sum(pairs.map(([, weight]) => weight));
    return sum(pairs.map(([value, weight]) => value * (left - (left = max(0, left - weight)))));
  });

/** The stream that orders a candidate's scenarios. */
async function drawWords(place) {
  const seed = await sha256(`tacit simulation, key 0, seed text planning scenarios, candidate ${place}`);
  const name = "AES-CTR", key = await crypto.subtle.importKey("raw", seed, name, false, ["encrypt"]);
  const stream = { name, counter: new Uint8Array(16), length: 128 };
  words[place] = Array.from(new BigUint64Array(await crypto.subtle.encrypt(stream, key, new Uint8Array(8 * COUNT))), Number);
}

/** Independent factors: a candidate meets each stratum once, in mirrored pairs. */
function factors(name, make, places = 1) {
  const own = (count) => range(places, (place) => once(`${name} ${place} ${count}`, () => make(count, place)));
  const all = [].concat(...own(COUNT));
  return {
    deviation: spread(all, mean(all)),
    draw(scores, count) {
      const strata = own(count), half = count >> 1;
      return scores.map((score, place) => once(`${place} ${count}`, () => {
        const pairs = range(half).sort((a, b) => words[place][a] - words[place][b]);
        const first = pairs.map((pair, at) => (words[place][half + at] < 2 ** 63 ? count - 1 - pair : pair));
        return [...first, ...range(count % 2, () => half), ...first.map((at) => count - 1 - at)];
      }).map((at) => score * strata[place % places][at]));
    },
  };
}

/** One of several laws, by weight; of remainders the largest. */
const mixed = (weights, laws) => ({
  deviation: sqrt(sum(laws.map(({ deviation }, at) => weights[at] * deviation ** 2)) / sum(weights)),
  draw(scores, count) {
    const wanted = weights.map((each) => (each / sum(weights)) * count), own = wanted.map(floor);
    const order = range(own.length).sort((a, b) => own[a] - wanted[a] - (own[b] - wanted[b]));
    for (const at of order.slice(0, count - sum(own))) own[at]++;
    const drawn = laws.map((law, at) => law.draw(scores, own[at]));
    return scores.map((_, place) => [].concat(...drawn.map((rows) => rows[place])));
  },
});

/** A law for so many ads: its deviation, and private scores in scenarios. */
function readLaw({ law, ...said }, ads, deeper = 4) {
  const { scale, share, sigma, strength, times = 2, values, weights, ratios, parts } = said, most = LAWS[law];
  demand(`${Object.keys(said).sort()}` === `${Object.keys(most)}` && times > 1);
  for (const key in most) demand(!most[key] || [said[key]].flat().every((x) => isIn(x, law === "lognormal" ? 0 : undefined, most[key])));
  const name = JSON.stringify([law, said]);
  switch (law) {
    case "lognormal":
      demand((sigma.length ?? ads) === ads);
      return factors(name, (count, place) => lognormal(sigma[place] ?? sigma, count), sigma.length);
    case "log-laplace":
      return factors(name, (count) => strata(count, (at) =>
        min((2 * at) / count, 1) ** (1 + scale) / (1 + scale) - min(2 - (2 * at) / count, 1) ** (1 - scale) / (1 - scale)));
    case "few-liked":
      return factors(name, (count) => stepped([[1, 1 - share], [times, share]], count));
    case "some-known":
      return factors(name, (count) => {
        const known = round(share * count);
        return [...lognormal(sigma, known), ...range(count - known, () => 1)].sort((a, b) => a - b);
      });
    case "ratios": {
      const often = weights ?? values.map(() => 1), pairs = values.map((value, at) => [value, often[at]]).sort(([a], [b]) => a - b);
      demand(said.statement.trim() && often.length === values.length && areIn(values) && areIn(often) && sum(pairs.map(([value, weight]) => value * weight)));
      return factors(name, (count) => stepped(pairs, count));
    }
    case "favourite":
      return {
        deviation: strength * sqrt(share),
        draw(scores, count) {
          const having = round(share * count), total = sum(scores);
          const drawn = scores.map((score) => range(count, (at) => (at < having ? 1 - strength : 1) * score));
          for (let at = 0, place = 0, end = scores[0]; at < having; at++) {
            while (place < scores.length - 1 && end / (total || 1) <= (at + 0.5) / having) end += scores[++place];
            drawn[place][at] += strength * total;
          }
          return drawn;
        },
      };
    case "contexts":
      demand(areIn(weights) && weights.length === ratios.length && areIn(ratios.flat()) && ratios.every((row) => row.length === ads));
      return mixed(weights, ratios.map((row) => ({
        deviation: spread(row, 1),
        draw: (scores, count) => scores.map((score, place) => range(count, () => score * row[place])),
      })));
    default: {
      const own = parts.map(({ weight }) => weight), { group = "", reports = 0 } = said;
      demand(deeper && own.length <= 256 && areIn(own) && group.at && isIn(reports, 0));
      return mixed(own, parts.map(({ weight, ...part }) => readLaw(part, ads, deeper - 1)));
    }
  }
}

/** What gains most over the public best; null where that is not told apart from nothing. */
function bestTop(scores, { draw, deviation }, odds, mechanism) {
  const rows = draw(scores, COUNT), ordered = [], found = [];
  let first;
  rows.forEach((row, at) => {
    const passed = Float64Array.from(row), kept = at + 1, sums = [];
    let all = 0;
    ordered.push(new Float64Array(COUNT).fill(-Infinity));
    for (const rank of ordered) {
      let total = 0;
      for (let each = 0; each < COUNT; each++) {
        const score = passed[each], other = rank[each];
        total += rank[each] = max(score, other);
        passed[each] = min(score, other);
      }
      sums.push((all += total / COUNT));
    }
    first ??= all;
    if (mechanism !== "trunc" && kept < rows.length) return;
    sums.slice(0, mechanism === "rr" ? 1 : kept).forEach((best, place) => {
      const top = place + 1, gain = (odds * all + (1 - odds) * best) / (odds * kept + (1 - odds) * top) - first;
      found.push({ kept, top, gain });
    });
  });
  const most = found.reduce((best, { gain }) => max(best, gain), -Infinity);
  demand(most !== Infinity, "finite forecasts");
  const least = max(1e-9 * scores[0], 0.04 * min(1, deviation) * (scores[1] ?? scores[0]));
  return most > least ? found.find(({ gain }) => gain === most) : null;
}

/** Randomized response for the private best `top` of the public best `kept`: of 2^64 words `high` for each, `low` for others,
 * one more for the first `spare`. high / low is at most e^epsilon, which is rounded down. */
export function topChoice(kept, top, epsilonMicros) {
  const one = 10n ** 90n, micros = BigInt(min(epsilonMicros, 7e8));
  let power = 0n;
  for (let term = one, n = 1n; term; term = (term * micros) / (1000000n * n++)) power += term;
  const unit = 10n ** BigInt(`${power}`.length - 60), odds = ((((power + unit / 2n) / unit - 1n) * unit) << 128n) / one;
  const rest = BigInt(kept - top), many = BigInt(top), share = many * odds + (rest << 128n);
  const low = ((1n << 192n) + share - 1n) / share, left = (1n << 64n) - rest * low;
  return { kept, top, low, high: left / many, spare: left % many, epsilonMicros };
}

/** How everybody chooses from a menu; null where nothing private is read. Optimal floors are UNSUPPORTED: take the public lane. */
export async function planMenu(menu) {
  const { entries, node: { levels }, mechanism, epsilonMicros, nothingRank: nothing } = menu;
  const scores = scoresBy(menu, candidates(menu).map(({ rate }) => rate)), odds = exp(-epsilonMicros / 1e6);
  demand(/^(first|second) price per impression$/.test(menu.rule) && (nothing !== null || !menu.ctrFloor) &&
    scores.every((score, at) => !(score > scores[at - 1])) &&
    entries.every(({ priceMicros, bidMicros, rate }) => priceMicros <= floor(bidMicros * rate)) &&
    menu.finer.every(({ node: { levels: own } }) => own.length === levels.length && `${own}` !== `${levels}` &&
      own.every((level, at) => level <= levels[at])), "a menu to choose from");
  let prior = attempt(() => {
    const { version, ...law } = Object.keys(menu.prior).length ? menu.prior : { version: 1, law: "lognormal", sigma: 1 };
    demand(version === 1);
    return readLaw(law, entries.length);
  }, "a known prior");
  if (menu.lane === "public" || !epsilonMicros) return null;
  demand(["trunc", "top", "rr", "floors"].includes(mechanism), "a mechanism");
  if (nothing !== null) {
    const { deviation, draw } = prior;
    prior = {
      deviation: deviation * sqrt(1 - 1 / scores.length),
      draw: (own, count) => draw(own.toSpliced(nothing, 1), count).toSpliced(nothing, 0, range(count, () => own[nothing])),
    };
  }
  await Promise.all(entries.map((_, place) => words[place] ?? drawWords(place)));
  if (!bestTop(scores, prior, odds, "trunc")) return null;
  demand(mechanism !== "floors", "another mechanism", "UNSUPPORTED");
  const plan = bestTop(scores.map((score) => floor((score / scores[0]) * 256) / 256), prior, odds, mechanism);
  return plan && plan.top < plan.kept ? { ...topChoice(plan.kept, plan.top, epsilonMicros), forecast: plan.gain * scores[0] } : null;
}
