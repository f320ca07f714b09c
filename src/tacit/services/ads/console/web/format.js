// Numbers, amounts and times in words. Times are UTC, and counted from the server's clock.

const WHOLE = new Intl.NumberFormat("en-GB");
const MICROS = 1_000_000;

/** @param {number} number */
export function count(number) {
  return WHOLE.format(number);
}

/** @param {number} number @param {string} one @param {string} [many] */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * Digits behind the point that the amounts of a column need: 2 at least, and up to 6 as they are smaller, but no
 * more than say something.
 * @param {(number | null)[]} micros
 */
export function places(micros) {
  const shown = micros.filter((each) => each).map((each) => Math.abs(/** @type {number} */ (each)));
  if (!shown.length) return 2;
  const least = Math.min(...shown);
  const most = least >= MICROS ? 2 : least >= MICROS / 100 ? 4 : 6;
  const exact = [2, 3, 4, 5, 6].find((digits) => shown.every((each) => each % 10 ** (6 - digits) === 0)) ?? 6;
  return Math.min(most, exact);
}

/** An amount in currency units. @param {number} micros @param {number} [digits] */
export function money(micros, digits = places([micros])) {
  return (micros / MICROS).toLocaleString("en-GB", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** An amount at an axis: as short as it is exact. @param {number} micros */
export function tick(micros) {
  return (micros / MICROS).toLocaleString("en-GB", { maximumFractionDigits: 6 });
}

/** The same to the last micro, for who wants it exactly. @param {number} micros */
export function exactly(micros) {
  return `${count(micros)} micros`;
}

/** Epsilon, rounded up to three digits: never less than it is. @param {number} epsilon */
export function epsilon(epsilon) {
  if (epsilon === 0) return "0";
  if (epsilon >= 1000) return count(Math.ceil(epsilon - 1e-9));
  const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(epsilon))));
  const scale = 10 ** digits;
  return (Math.ceil(epsilon * scale - 1e-9) / scale).toFixed(digits);
}

/** Rounded down: what is left. @param {number} nanos */
export function epsilonLeft(nanos) {
  if (nanos >= 1e12) return count(Math.floor(nanos / 1e9));
  return (Math.floor(nanos / 1e6) / 1000).toFixed(2 + Number(nanos % 1e7 !== 0));
}

/** @param {number} share */
export function percent(share) {
  return share.toLocaleString("en-GB", { style: "percent", maximumFractionDigits: share < 0.1 ? 1 : 0 });
}

/** "14:05" of today, "17 Nov, 14:05" of another day. @param {number} second @param {number} now */
export function moment(second, now) {
  const iso = new Date(second * 1000).toISOString();
  if (Math.floor(second / 86_400) === Math.floor(now / 86_400)) return iso.slice(11, 16);
  const month = new Date(second * 1000).toLocaleDateString("en-GB", {
    day: "numeric",
    month: "short",
    timeZone: "UTC",
  });
  const year = iso.slice(0, 4) === new Date(now * 1000).toISOString().slice(0, 4) ? "" : ` ${iso.slice(0, 4)}`;
  return `${month}${year}, ${iso.slice(11, 16)}`;
}

/** All of it, for titles. @param {number} second */
export function stamp(second) {
  return `${new Date(second * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** @param {number} seconds */
export function duration(seconds) {
  const left = Math.max(0, Math.round(seconds));
  if (left < 90) return `${left} s`;
  if (left < 5400) return `${Math.round(left / 60)} min`;
  return left < 172_800 ? `${Math.round(left / 3600)} h` : `${Math.round(left / 86_400)} days`;
}
