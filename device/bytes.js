/** Bytes of messages: fields of fixed layout, big-endian, so that each message has one spelling. */

/** By their numbers on the wire. */
export const VERDICTS =
  "ACCEPTED DUPLICATE MALFORMED OVERSIZED UNKNOWN_MENU UNKNOWN_CONTEXT STALE_EPOCH EXPIRED FORGED UNOPENABLE WRONG_OPENING NO_SUCH_ENTRY CONFLICT UNAUTHENTICATED NOT_LISTED OVER_BUDGET NONE_LEFT".split(" ");

/** Why a message is not taken; `reason` is of VERDICTS. */
export class Refused extends Error {
  constructor(reason, detail) {
    super(`${reason}: ${detail}`);
    this.reason = reason;
  }
}

/** Whether a refusal's reason is one of these, a text with blanks between them. */
export const isOf = (reasons, { reason }) => reasons.split(" ").includes(reason);

/** @returns {never} */
export function refuse(reason, detail) {
  throw new Refused(reason, detail);
}

/** Refuse what does not hold. */
export const demand = (value, detail, reason = "MALFORMED") => value || refuse(reason, `expected ${detail}`);

/** Refuse what throws. */
export function attempt(act, detail) {
  try {
    return act();
  } catch {
    demand(0, detail);
  }
}

export const random = (size) => crypto.getRandomValues(new Uint8Array(size));

export const utf8 = (text) => demand(text.isWellFormed(), "UTF-8") && new TextEncoder().encode(text);

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
export const decode = (bytes) => attempt(() => decoder.decode(bytes), "UTF-8");

/** Bytes, and texts in UTF-8, in one. */
export function concat(...parts) {
  const all = parts.map((part) => (part.trim ? utf8(part) : part));
  const joined = new Uint8Array(all.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of all) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

export const equal = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);

export const hex = (bytes) => bytes.reduce((text, byte) => text + (256 + byte).toString(16).slice(1), "");

export const unhex = (text) =>
  demand(/^([\da-f]{2})*$/i.test(text), "hex") && new Uint8Array(text.match(/../g)?.map((pair) => parseInt(pair, 16)));

export const unbase64 = (text) =>
  attempt(() => {
    demand(text.length % 4 === 0 && !/\s/.test(text));
    return Uint8Array.from(atob(text), (byte) => byte.charCodeAt());
  }, "base64");

/** Fields as they are written: u8 u16 u32 u64 i64 f64, and these. */
export class Writer {
  parts = [];
  raw(bytes, size = bytes.length) {
    demand(bytes.length === size, `${size} bytes`);
    this.parts.push(bytes);
    return this;
  }
  blob16(bytes) { return this.u16(bytes.length).raw(bytes); }
  blob32(bytes) { return this.u32(bytes.length).raw(bytes); }
  text(text) { return this.blob16(utf8(text)); }
  done() { return concat(...this.parts); }
}

/** The same, read. Whole numbers beyond 2^53, which doubles cannot hold, are refused. */
export class Reader {
  at = 0;
  constructor(data) { this.data = data; }
  raw(size) {
    const bytes = this.data.slice(this.at, (this.at += size));
    demand(bytes.length === size, "more bytes");
    return bytes;
  }
  blob16() { return this.raw(this.u16()); }
  blob32() { return this.raw(this.u32()); }
  text() { return decode(this.blob16()); }
  rest() { return this.raw(this.data.length - this.at); }
  end() { demand(this.at === this.data.length, "an end"); }
}

const LAYOUTS = { u8: "Uint8", u16: "Uint16", u32: "Uint32", u64: "BigUint64", i64: "BigInt64", f64: "Float64" };
for (const [name, layout] of Object.entries(LAYOUTS)) {
  const size = name.slice(1) / 8, isBig = layout[0] === "B";
  Writer.prototype[name] = function (value) {
    const view = new DataView(new ArrayBuffer(size));
    view["set" + layout](0, isBig ? BigInt(value) : value);
    demand(view["get" + layout](0) == value, "a number that fits");
    return this.raw(new Uint8Array(view.buffer));
  };
  Reader.prototype[name] = function () {
    const value = new DataView(this.raw(size).buffer)["get" + layout](0);
    demand(!isBig || (value <= 2 ** 53 && value >= -(2 ** 53)), "at most 2^53");
    return Number(value);
  };
}

/** A message of version 1, read to its end. */
export function readMessage(data, parse) {
  demand(data, "a message");
  const reader = new Reader(data);
  demand(reader.u8() === 1, "version 1");
  const message = parse(reader);
  reader.end();
  return message;
}
