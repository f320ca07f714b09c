/** Blind RSA tokens (RFC 9474, RSABSSA-SHA384-PSS-Randomized): a right to report one impression. */
import { concat, demand, hex, random, unhex } from "./bytes.js";
import { sha256, sha384 } from "./seals.js";

const numberOf = (bytes) => BigInt("0x" + hex(bytes));
const bytesOf = (number, size) => unhex(number.toString(16).padStart(2 * size, 0));

/** What a token is known by. */
export const tokenNonce = (secret) => sha256("tacit/nonce/1", secret);

/** What is signed: the random prefix, the purpose and the menu. */
export const tokenMessage = (nonce, menuId) => concat(nonce, "tacit/impression/1", menuId);

/** EMSA-PSS with SHA-384 (RFC 8017, 9.1.1), a bit shorter than `size` bytes. */
export async function encodePss(message, size, salt) {
  const digest = await sha384(new Uint8Array(8), await sha384(message), salt);
  const masks = Array.from({ length: size / 48 }, (_, at) => sha384(digest, [0, 0, 0, at]));
  const block = concat(...(await Promise.all(masks))).slice(0, size - 49);
  concat([1], salt).forEach((byte, at) => (block[size - 98 + at] ^= byte));
  block[0] &= 127;
  return concat(block, digest, [188]);
}

/** The inverse of a number, which shares no factor with the modulus. */
function invert(number, modulus) {
  let [a, b, x, y] = [modulus, number, 0n, 1n];
  while (b) {
    const quotient = a / b;
    [a, b, x, y] = [b, a - quotient * b, y, x - quotient * y];
  }
  demand(a === 1n, "a modulus of two large primes", "FORGED");
  return x + modulus;
}

/** A blinded message (RFC 9474, 4.2), and what takes the blinding off. Salt and factor are given by test vectors. */
export async function blind(modulus, message, salt = random(48), factor = 0n) {
  const size = modulus.length, n = numberOf(modulus), encoded = numberOf(await encodePss(message, size, salt));
  while (factor <= 0n || factor >= n) factor = numberOf(random(size));
  // What divides message and modulus divides what is sent too, and would link them: one inverse tells.
  const inverse = invert((encoded * factor) % n, n) * encoded;
  let power = factor;
  for (let squares = 0; squares < 16; squares++) power = (power * power) % n;
  return { blinded: bytesOf((encoded * power * factor) % n, size), inverse: bytesOf(inverse % n, size) };
}

/** Whether the holder of the private key signed the message. */
export async function verifyToken(modulus, message, signature) {
  const n = btoa(String.fromCharCode(...modulus)).replace(/[+/=]/g, (sign) => ({ "+": "-", "/": "_" })[sign] ?? "");
  const kind = { name: "RSA-PSS", hash: "SHA-384", saltLength: 48 };
  const key = await crypto.subtle.importKey("jwk", { kty: "RSA", n, e: "AQAB" }, kind, false, ["verify"]);
  return crypto.subtle.verify(kind, key, signature, message);
}

/** The token that a blind signature hides. */
export async function unblind(modulus, message, blindSignature, inverse) {
  const size = modulus.length;
  demand(blindSignature.length === size, "a signature of the key's length", "FORGED");
  const token = bytesOf((numberOf(blindSignature) * numberOf(inverse)) % numberOf(modulus), size);
  demand(await verifyToken(modulus, message, token), "a token of this key", "FORGED");
  return token;
}

/** What the device keeps of a new token, and `blinded`, which it sends. */
export async function drawToken(modulus, menuId) {
  const secret = random(32), nonce = await tokenNonce(secret);
  return { secret, nonce, ...(await blind(modulus, tokenMessage(nonce, menuId))) };
}

export const finalize = (modulus, menuId, nonce, blindSignature, inverse) =>
  unblind(modulus, tokenMessage(nonce, menuId), blindSignature, inverse);
