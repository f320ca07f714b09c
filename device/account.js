/** What a device's choices tell in a window, in millionths of epsilon: local, to both parties together; central, to the ad server alone. */
import { demand } from "./bytes.js";

const sum = (choices) => choices.reduce((total, { micros }) => total + micros, 0);

/** Epsilon in a batch of n, but for delta: Feldman, McMillan, Talwar (arXiv 2012.12803), theorem 3.1. */
function shuffled(epsilon, n, delta) {
  if (epsilon > Math.log(n / (16 * Math.log(2 / delta)))) return epsilon;
  const c = Math.exp(epsilon), spread = 8 * Math.sqrt((c * Math.log(4 / delta)) / n) + (8 * c) / n;
  return Math.min(epsilon, Math.log1p(((c - 1) / (c + 1)) * spread));
}

/** Epsilons add up, and so do deltas: each of k settled choices has delta / k. Those of one batch share its size. Never below Python's
 * figure, whose sizes end at 2^20 and whose conversion ends at order 1025: hence the last term. */
function central(choices, delta) {
  const settled = choices.filter(({ cohort }) => cohort);
  let all = sum(choices) - sum(settled) + (settled.length && Math.max(0, -Math.log(delta) - 7.9) * 977);
  for (const { micros, batch } of settled) {
    const own = settled.filter((each) => each.batch === batch);
    const size = Math.floor(Math.min(...own.map(({ cohort }) => cohort)) / own.length);
    all += shuffled(micros / 1e6, Math.min(size, 2 ** 20), delta / settled.length) * 1e6;
  }
  return Math.min(sum(choices), Math.ceil(all * (1 + 2 ** -40)));
}

/** An account, which never changes: `reserve` and `settle` give the next. One per device and ad server. */
export class Account {
  /** @param {{local: number, central?: number, perChoice: number, delta: number, windowSeconds: number}} limits in epsilon */
  constructor(limits, { turn = 0, seconds = limits.windowSeconds, window, choices = [] } = {}) {
    const { local, central = local, perChoice, delta, windowSeconds } = limits;
    const micros = [local, central, perChoice].map((epsilon) => Math.round(epsilon * 1e6));
    const exact = [local, central, perChoice].every((epsilon, at) => epsilon > 0 && micros[at] / 1e6 === epsilon);
    demand(choices.every((each) => Number.isInteger(each.micros) && each.micros > 0), "choices that spent millionths");
    demand(exact && perChoice <= local && delta > 0 && delta < 1 && windowSeconds % 1 === 0, "limits in whole millionths");
    demand(seconds === windowSeconds && seconds > 0, "limits for each window as this account was begun");
    Object.assign(this, { limits, turn, seconds, window, choices, most: micros });
  }
  toJSON() { return { turn: this.turn, seconds: this.seconds, window: this.window, choices: this.choices }; }
  get localMicros() { return sum(this.choices); }
  get centralMicros() { return central(this.choices, this.limits.delta); }
  windowOf(now) { return Math.floor(now / this.seconds); }
  /** The same at a second: with nothing spent once its window is over. */
  at(now) { return this.windowOf(now) > this.window ? new Account(this.limits) : this; }
  #with(micros, now) { return [...this.at(now).choices, { micros }]; }
  #next(more) { return new Account(this.limits, { ...this.toJSON(), turn: this.turn + 1, ...more }); }

  /** Whether one more choice keeps within all limits, counted in full; by a clock that was set back none does. */
  affords(micros, now) {
    const choices = this.#with(micros, now), [local, most, perChoice] = this.most;
    const fits = micros <= perChoice && sum(choices) <= local && central(choices, this.limits.delta) <= most;
    return micros === 0 || (Number.isInteger(micros) && micros > 0 && fits && !(this.windowOf(now) < this.window));
  }
  /** The account after one more choice; refused before anything changes. */
  reserve(micros, now) {
    demand(this.affords(micros, now), "a choice within the limits", "SPENT");
    return micros ? this.#next({ window: this.windowOf(now), choices: this.#with(micros, now) }) : this;
  }
  /** The account once batches are known. @param {{micros: number, window: number, cohort: number, batch: string}[]} found */
  settle(found) {
    const choices = [...this.choices], own = found.filter(({ micros, window }) => micros && window === this.window);
    for (const { micros, cohort, batch } of own) {
      const at = choices.findIndex((each) => each.micros === micros && !each.cohort);
      demand(at >= 0 && cohort >= 1, "a choice that was reserved and not settled yet");
      choices[at] = { micros, cohort, batch };
    }
    return own.length ? this.#next({ choices }) : this;
  }
}
