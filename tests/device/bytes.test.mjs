import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Reader, Refused, VERDICTS, Writer, concat, equal, hex, random, readMessage, refuse, unbase64, unhex, utf8,
} from "../../device/bytes.js";
import { assertRefused } from "./support.mjs";

const MALFORMED = "MALFORMED";

test("fields are read as they were written, big-endian", () => {
  const data = new Writer()
    .u8(255).u16(0x102).u32(0xfffefdfc).u64(2 ** 53).i64(-3).f64(0.04)
    .raw(Uint8Array.of(9, 8), 2).blob16(Uint8Array.of(7)).blob32(new Uint8Array(0)).text("ü€😀").done();
  assert.equal(
    hex(data),
    "ff" + "0102" + "fffefdfc" + "0020000000000000" + "fffffffffffffffd" + "3fa47ae147ae147b" + "0908" +
      "000107" + "00000000" + "0009c3bce282acf09f9880",
  );
  const reader = new Reader(data);
  assert.deepEqual(
    [reader.u8(), reader.u16(), reader.u32(), reader.u64(), reader.i64(), reader.f64()],
    [255, 0x102, 0xfffefdfc, 2 ** 53, -3, 0.04],
  );
  assert.deepEqual([...reader.raw(2), ...reader.blob16(), ...reader.blob32()], [9, 8, 7]);
  assert.equal(reader.text(), "ü€😀");
  assert.equal(reader.rest().length, 0);
  reader.end();
});

test("fields are read from the middle of a buffer too, and are copies", () => {
  const whole = Uint8Array.of(99, 1, 2, 3, 4, 99);
  const reader = new Reader(whole.subarray(1, 5));
  const first = reader.raw(2);
  assert.equal(reader.u16(), 0x304);
  reader.end();
  whole.fill(0);
  assert.deepEqual([...first], [1, 2]);
});

test("numbers that do not fit their field are refused", async () => {
  for (const [name, value] of [
    ["u8", 256], ["u8", -1], ["u8", 1.5], ["u16", 65_536], ["u32", 2 ** 32], ["u64", -1], ["u64", 2n ** 64n],
    ["i64", 2n ** 63n], ["u8", undefined],
  ]) {
    await assertRefused(MALFORMED, () => new Writer()[name](value));
  }
  await assertRefused(MALFORMED, () => new Writer().raw(new Uint8Array(31), 32));
  await assertRefused(MALFORMED, () => new Writer().blob16(new Uint8Array(65_536)));
  await assertRefused(MALFORMED, () => new Writer().text("\ud800"));
});

test("numbers of 64 bits are read up to 2^53, and never rounded", async () => {
  const read = (name, value) => new Reader(new Writer()[name](value).done())[name]();
  for (const value of [0, 1, 2 ** 53 - 1, 2 ** 53]) assert.equal(read("u64", value), value);
  for (const value of [-(2 ** 53), -1, 0, 2 ** 53]) assert.equal(read("i64", value), value);
  await assertRefused(MALFORMED, () => read("u64", 2n ** 53n + 1n));
  await assertRefused(MALFORMED, () => read("u64", 2n ** 64n - 1n));
  await assertRefused(MALFORMED, () => read("i64", 2n ** 53n + 1n));
  await assertRefused(MALFORMED, () => read("i64", -(2n ** 53n) - 1n));
  assert.equal(read("f64", 1e300), 1e300);
});

test("bytes that end early, or late, are refused", async () => {
  const some = Uint8Array.of(0, 3, 1, 2);
  await assertRefused(MALFORMED, () => new Reader(some).blob16());
  await assertRefused(MALFORMED, () => new Reader(some).blob32());
  await assertRefused(MALFORMED, () => new Reader(some).u64());
  await assertRefused(MALFORMED, () => new Reader(some).raw(5));
  await assertRefused(MALFORMED, () => new Reader(some).end());
  await assertRefused(MALFORMED, () => readMessage(some, (reader) => reader.rest()));
  await assertRefused(MALFORMED, () => readMessage(Uint8Array.of(1, 2), () => 0));
  await assertRefused(MALFORMED, () => readMessage(new Uint8Array(0), () => 0));
  assert.equal(readMessage(Uint8Array.of(1, 2), (reader) => reader.u8()), 2);
});

test("texts are UTF-8, and nothing in them is lost", async () => {
  const read = (...bytes) => new Reader(Uint8Array.of(0, bytes.length, ...bytes)).text();
  assert.equal(read(0xef, 0xbb, 0xbf, 0x61), "\ufeffa"); // a byte order mark is a character of a value
  for (const bad of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xe2, 0x82]]) {
    await assertRefused(MALFORMED, () => read(...bad));
  }
  await assertRefused(MALFORMED, () => utf8("a\udc00"));
});

test("hex and base64 are read in their own alphabets alone", async () => {
  const some = random(48);
  assert.deepEqual(unhex(hex(some)), some);
  assert.deepEqual(unhex("00fFA0"), Uint8Array.of(0, 255, 160));
  assert.equal(unhex("").length, 0);
  for (const bad of ["0", "0g", "0 1 ", "0x01", "00\n", undefined]) await assertRefused(MALFORMED, () => unhex(bad));
  for (let size = 0; size < 48; size++) {
    const part = some.slice(0, size);
    assert.deepEqual(unbase64(Buffer.from(part).toString("base64")), part);
  }
  for (const bad of ["a", "ab", "abc", "ab= ", "a===", "ab=c", "abc_", "ab-d", "abcd\n", "ab cd===", "=abc", 7]) {
    await assertRefused(MALFORMED, () => unbase64(bad));
  }
});

test("parts are joined, texts as UTF-8, and compared to the last byte", () => {
  assert.deepEqual(concat("ü", [0], Uint8Array.of(1)), Uint8Array.of(0xc3, 0xbc, 0, 1));
  assert.ok(equal(Uint8Array.of(1, 2), [1, 2]));
  assert.ok(!equal(Uint8Array.of(1, 2), [1, 3]));
  assert.ok(!equal(Uint8Array.of(1, 2), [1]));
  assert.ok(!equal([], [1]));
});

test("random bytes are drawn anew each time", () => {
  assert.equal(random(32).length, 32);
  assert.notEqual(hex(random(32)), hex(random(32)));
});

test("a refusal names its reason, of those that are on the wire", () => {
  assert.equal(VERDICTS.length, 17);
  assert.deepEqual([VERDICTS[0], VERDICTS[2], VERDICTS[8], VERDICTS[16]], ["ACCEPTED", "MALFORMED", "FORGED", "NONE_LEFT"]);
  assert.throws(() => refuse("FORGED", "expected another"), (fault) => {
    return fault instanceof Refused && fault instanceof Error && fault.reason === "FORGED" && /another/.test(fault.message);
  });
});
