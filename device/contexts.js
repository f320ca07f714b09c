/** Contexts: what is said of them at each level, and what of it is told. */
import { demand } from "./bytes.js";
import { contextBytes } from "./messages.js";
import { sha256 } from "./seals.js";

export const nodeKey = ({ levels, values }) => JSON.stringify([levels, values]);

/** A node, at most so many steps below the root. */
function climb(parents, node, depth) {
  demand(node?.at && Object.hasOwn(parents, node), "a node of the tree");
  const path = [node];
  while (parents[path[0]] !== null) path.unshift(parents[path[0]]);
  return path[Math.min(depth, path.length - 1) || -1] ?? "*";
}

/** Degrees as written, rounded down to digits, by cells of the finest. */
function cell(degrees, most, finest, digits) {
  let cells = Math.floor(degrees * 10 ** finest) - 1;
  while ((cells + 1) / 10 ** finest <= degrees) cells++;
  return (Math.floor(Math.min(cells, most * 10 ** finest - 1) / 10 ** (finest - digits)) / 10 ** digits).toFixed(digits);
}

/** As Python writes it. */
const written = (x) =>
  x && Math.abs(x) < 1e-4 ? x.toExponential().replace(/-(\d)$/, "-0$1") : Number.isInteger(x) ? x.toFixed(1) : `${x}`;

/** What attributes say of a value, by what a level keeps. */
const KINDS = {
  tree: ({ parents }, value, depth) => climb(parents, value, depth),
  set({ parents, most }, values, depth) {
    demand(Array.isArray(values) && values.length <= most, "a list of nodes");
    return [...new Set(values.map((each) => climb(parents, each, depth)))].sort().join(" + ") || "-";
  },
  decimals({ sizes }, place, digits) {
    demand(place?.length === 2 && place.every(Number.isFinite) && Math.abs(place[0]) <= 90 && Math.abs(place[1]) <= 180, "a place");
    const pole = Math.abs(place[0]) === 90, finest = sizes[0] ?? sizes[1];
    const both = [place[0] + 0, pole ? 0 : place[1] === 180 ? -180 : place[1] + 0];
    return both.map((each, at) => (digits === null ? written(each) : cell(each, 90 + 90 * at, finest, digits))).join();
  },
};

/** The device's nodes, the finest first, and the one that is told: at levels, or by a published cut.
 * @param {object} hierarchy of Python's hierarchy_as_json @param {number[]|{told: object}} setting */
export function generalise({ version, attributes, levels }, context, setting) {
  demand(version === 1 && Array.isArray(context) && context.length === attributes.length, "a value per attribute");
  const say = (level, at) => {
    const { kind, sizes } = attributes[at], said = KINDS[kind](attributes[at], context[at], sizes[level] ?? sizes[0]);
    return level < sizes.length ? said : "*";
  };
  const path = levels.map((own) => ({ levels: own, values: own.map(say) }));
  const told = setting.told ? path.map((node) => setting.told[nodeKey(node)]).find(Boolean) : setting;
  return { path, disclosed: demand(path.find((node) => `${node.levels}` === `${told}`), "a context that is told") };
}

/** By which questions name a context. */
export const contextNumber = async (node) =>
  Number(new DataView((await sha256("tacit context 1 ", contextBytes(node))).buffer).getBigUint64(0) >> 11n);
