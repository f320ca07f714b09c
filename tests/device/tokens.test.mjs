import assert from "node:assert/strict";
import { test } from "node:test";

import { hex, random, unhex } from "../../device/bytes.js";
import {
  blind, drawToken, encodePss, finalize, tokenMessage, tokenNonce, unblind, verifyToken,
} from "../../device/tokens.js";
import { assertRefused, flipped, readVectors } from "./support.mjs";

const VECTORS = readVectors("billing_v1");
const RFC = readVectors("rfc9474");
const KEYS = Object.fromEntries(VECTORS.token_keys.map((key) => [key.menu, key]));
const modulusOf = (menu) => unhex(KEYS[menu].n);
const menuIdOf = (menu) => unhex(VECTORS.menus[menu].menu_id);
const number = (digits) => BigInt(`0x${digits}`);
const spelled = (value, size = 256) => unhex(value.toString(16).padStart(2 * size, "0"));

function power(base, exponent, modulus) {
  let found = 1n;
  for (let left = exponent, square = base % modulus; left; left >>= 1n, square = (square * square) % modulus) {
    if (left & 1n) found = (found * square) % modulus;
  }
  return found;
}

/** By Euler's theorem, for a modulus of two known primes: another way than the device's. */
const inverseOf = (value, { p, q, n }) =>
  power(value, (number(p) - 1n) * (number(q) - 1n) - 1n, number(n));

const signBlinded = (blinded, { d, n }) => spelled(power(number(hex(blinded)), number(d), number(n)), blinded.length);

test("RFC 9474, appendix A.1: RSABSSA-SHA384-PSS-Randomized", async () => {
  const modulus = unhex(RFC.n), message = unhex(RFC.prepared_msg), factor = inverseOf(number(RFC.inv), RFC);
  const made = await blind(modulus, message, unhex(RFC.salt), factor);
  assert.equal(hex(made.blinded), RFC.blinded_msg);
  assert.equal(number(hex(made.inverse)), number(RFC.inv));
  assert.equal(hex(await unblind(modulus, message, unhex(RFC.blind_sig), made.inverse)), RFC.sig);
});

test("tokens come out as the vectors have them", async () => {
  for (const said of VECTORS.tokens) {
    const modulus = modulusOf(said.menu), menuId = menuIdOf(said.menu), secret = unhex(said.secret);
    const nonce = await tokenNonce(secret), message = tokenMessage(nonce, menuId);
    assert.deepEqual([hex(nonce), hex(message)], [said.nonce, said.message]);
    assert.equal(hex(await encodePss(message, 256, unhex(said.salt))), said.encoded);
    const made = await blind(modulus, message, unhex(said.salt), number(said.factor));
    assert.deepEqual([hex(made.blinded), hex(made.inverse)], [said.blinded, said.inverse]);
    const token = await finalize(modulus, menuId, nonce, unhex(said.blind_signature), made.inverse);
    assert.equal(hex(token), said.token);
    assert.ok(await verifyToken(modulus, message, token));
  }
});

for (const [name, said] of Object.entries(VECTORS.bad_tokens)) {
  test(`no token: ${name}`, async () => {
    const modulus = modulusOf("personal"), message = unhex(said.message), data = unhex(said.bytes);
    assert.equal(await verifyToken(modulus, message, data), false);
    // As a blind signature with nothing to take off it is refused too; plus the modulus it is the token itself.
    if (name === "bad_plus_modulus") return;
    await assertRefused(said.verdict, () => unblind(modulus, message, data, spelled(1n)));
  });
}

test("what is drawn and signed is a token of its menu, and another one each time", async () => {
  const key = KEYS.personal, modulus = modulusOf("personal"), menuId = menuIdOf("personal");
  const [one, two] = [await drawToken(modulus, menuId), await drawToken(modulus, menuId)];
  for (const name of ["secret", "nonce", "blinded", "inverse"]) assert.notEqual(hex(one[name]), hex(two[name]));
  assert.deepEqual([one.secret.length, one.blinded.length, one.inverse.length], [32, 256, 256]);
  assert.equal(hex(await tokenNonce(one.secret)), hex(one.nonce));
  const signature = signBlinded(one.blinded, key);
  const token = await finalize(modulus, menuId, one.nonce, signature, one.inverse);
  assert.ok(await verifyToken(modulus, tokenMessage(one.nonce, menuId), token));
  await assertRefused("FORGED", () => finalize(modulus, menuIdOf("public"), one.nonce, signature, one.inverse));
  await assertRefused("FORGED", () => finalize(modulus, menuId, two.nonce, signature, one.inverse));
  await assertRefused("FORGED", () => finalize(modulus, menuId, one.nonce, signature, two.inverse));
  await assertRefused("FORGED", () => finalize(modulus, menuId, one.nonce, flipped(signature, 255), one.inverse));
  await assertRefused("FORGED", () => finalize(modulus, menuId, one.nonce, signature.slice(1), one.inverse));
});

test("factors are taken below the modulus, and drawn again otherwise", async () => {
  const modulus = modulusOf("personal"), n = number(KEYS.personal.n), message = random(82);
  for (const outside of [0n, n, n + 5n, -1n]) {
    const { inverse } = await blind(modulus, message, random(48), outside);
    assert.ok(number(hex(inverse)) > 1n && number(hex(inverse)) < n);
  }
  const { inverse } = await blind(modulus, message, random(48), n - 1n);
  assert.equal(number(hex(inverse)), n - 1n);
});

test("a factor or a message that shares a divisor with the modulus is never sent", async () => {
  const { p, n } = KEYS.personal;
  await assertRefused("FORGED", () => blind(unhex(n), random(82), random(48), number(p) * 5n));
  // Under a modulus with the factor 3 every third message shares it, whatever the blinding factor: none of 100 does
  // with chance (2/3)^100 < 1e-17.
  let refused = 0;
  const modulus = spelled(3n * (2n ** 2046n + 1n));
  for (let tries = 0; tries < 100; tries++) {
    await blind(modulus, random(82), random(48), 1n).catch((fault) => (refused += fault.reason === "FORGED"));
  }
  assert.ok(refused > 0 && refused < 100, `expected some of 100 messages to be refused, got ${refused}`);
});
