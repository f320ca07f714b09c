/** A device's own click rates: by a model, or by its history. */
import { attempt, decode, demand, Reader, utf8 } from "./bytes.js";
import { candidates, entryIndex } from "./choice.js";
import { nodeKey } from "./contexts.js";

const u64 = (x) => BigInt.asUintN(64, x);

/** A step of SplitMix. */
function absorb(state, word) {
  state = u64((state ^ word) + 0x9e3779b97f4a7c15n);
  state = u64((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n);
  state = u64((state ^ (state >> 27n)) * 0x94d049bb133111ebn);
  return state ^ (state >> 31n);
}

/** 64 bits for a text. */
function fingerprint(text, seed) {
  const bytes = utf8(text), words = new BigUint64Array(Math.ceil(bytes.length / 8));
  new Uint8Array(words.buffer).set(bytes);
  return words.reduce(absorb, absorb(BigInt(seed), BigInt(bytes.length)));
}

/** A model of Python's export_device. @param {Uint8Array} data */
export function loadModel(data) {
  const reader = new Reader(data), model = attempt(() => JSON.parse(decode(reader.blob32())), "a model");
  demand(model.format === "tacit device model 1", "a model for devices");
  for (const column of model.columns) column.listed = new BigUint64Array(reader.raw(8 * column.values).buffer);
  return { ...model, table: new Float32Array(reader.rest().buffer) };
}

/** A value's token: of numbers their bucket, of times their place in a cycle. */
function spell({ edges, whole, cycle, unit, shift }, value) {
  if (value.at && !whole && !edges) return value;
  const x = Number(value), size = Math.abs(x), isWhole = Number.isInteger(x);
  demand(typeof value !== "string" && typeof value !== "object" && (whole ? isWhole : edges || size < 2 ** 53), "a number");
  if (edges) return `${edges.filter((edge) => edge <= size).length * (x < 0 ? -1 : 1)}`;
  if (cycle) return `${((Math.floor((x + shift) / unit) % cycle) + cycle) % cycle}`;
  return isWhole || size < 1e10 ? `${x}` : x.toExponential();
}

/** The chance of a click in a row by column; null for missing values. */
export function scoreRow({ columns, table, width, bias }, row) {
  const ids = columns.map(({ source, seed, start, missing, bins, listed, ...kind }) => {
    const value = row[source];
    demand(value !== undefined, `a value of ${source}`);
    if (value === null || value !== value) return missing;
    const token = fingerprint(spell(kind, value), seed);
    return start + (bins ? Number(((token >> 32n) * BigInt(bins)) >> 32n) : 2 + listed.indexOf(token));
  });
  let score = bias;
  for (let at = 0; at < width; at++) {
    let all = 0, squares = 0;
    for (const id of ids) {
      const weight = table[id * width + at];
      all += weight;
      squares += weight * weight;
    }
    score += at ? (all * all - squares) / 2 : all;
  }
  return 1 / (1 + Math.exp(-score));
}

/** The model's rates, of what is known of this person and moment; `campaign` is each candidate's number. */
export const modelRates = (model, row, menu) =>
  candidates(menu).map(({ campaign }) => (campaign < 0 ? 0 : scoreRow(model, { ...row, campaign })));

const keysAt = (levels, path) => levels.map((own) => nodeKey(demand(path.find((node) => `${node.levels}` === `${own}`), "a level")));

/** The server's rates where the device is, then the person's own from coarse to fine, each as `strength` requests of the next.
 * @param {{levels: number[][], strength: number, most: number, requests: object[]}} history the coarsest levels first */
export function historyRates({ levels, strength, requests }, menu, { path, disclosed }) {
  demand(nodeKey(menu.node) === nodeKey(disclosed), "a menu of what was told");
  const finer = new Map(menu.finer.map(({ node, rates }) => [nodeKey(node), rates]));
  const below = path.filter((node) => node !== disclosed && node.levels.every((level, at) => level <= disclosed.levels[at]));
  return candidates(menu).map(({ campaign, rate }, rank) => {
    for (const node of below.toReversed()) rate = finer.get(nodeKey(node))?.get(entryIndex(menu, rank)) ?? rate;
    for (const key of keysAt(levels, path)) {
      const seen = requests.filter(({ nodes }) => nodes.includes(key));
      if (seen.length) rate = (seen.filter(({ ad }) => ad === campaign).length + strength * rate) / (seen.length + strength);
    }
    return Math.min(rate, 1);
  });
}

/** The history after a click on an ad, or null for none. */
export const withRequest = (history, ad, { path }) => ({
  ...history, requests: [...history.requests, { ad, nodes: keysAt(history.levels, path) }].slice(-history.most),
});
