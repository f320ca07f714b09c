/** Seals, signatures and digests, by WebCrypto. */
import { concat, demand, refuse } from "./bytes.js";

const { subtle } = crypto;
const bytes = async (promise) => new Uint8Array(await promise);
export const sha256 = (...parts) => bytes(subtle.digest("SHA-256", concat(...parts)));
export const sha384 = (...parts) => bytes(subtle.digest("SHA-384", concat(...parts)));

async function hmac(secret, ...parts) {
  const key = await subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return bytes(subtle.sign("HMAC", key, concat(...parts)));
}

async function aesGcm(use, secret, iv, data, additionalData) {
  const key = await subtle.importKey("raw", secret, "AES-GCM", false, [use]);
  return bytes(subtle[use]({ name: "AES-GCM", iv, additionalData }, key, data));
}

const KEM = "HPKE-v1KEM\0\x20";
const SUITE = "HPKE-v1HPKE\0\x20\0\x01\0\x01";
const NO_SALT = new Uint8Array(32);

/** A seal by HPKE (RFC 9180: base mode, X25519, HKDF-SHA256, AES-128-GCM). @param {CryptoKeyPair} [ephemeral] of test vectors */
export async function seal(plain, publicKey, info, ephemeral) {
  const own = ephemeral ?? (await subtle.generateKey("X25519", false, ["deriveBits"]));
  const to = { name: "X25519", public: await subtle.importKey("raw", publicKey, "X25519", false, []) };
  const shared = await bytes(subtle.deriveBits(to, own.privateKey, 256).catch(() => 0));
  demand(shared.some(Boolean), "a key of large order");
  const enc = await bytes(subtle.exportKey("raw", own.publicKey));
  const kem = await hmac(NO_SALT, KEM + "eae_prk", shared);
  const secret = await hmac(kem, [0, 32], KEM + "shared_secret", enc, publicKey, [1]);
  const scheduled = await hmac(secret, SUITE + "secret");
  const hashes = [await hmac(NO_SALT, SUITE + "psk_id_hash"), await hmac(NO_SALT, SUITE + "info_hash", info)];
  const expand = async (size, label) =>
    (await hmac(scheduled, [0, size], SUITE + label, [0], ...hashes, [1])).slice(0, size);
  const sealed = await aesGcm("encrypt", await expand(16, "key"), await expand(12, "base_nonce"), plain, new Uint8Array());
  return concat(enc, sealed);
}

/** Refuse what this key did not sign for this purpose, by Ed25519. */
export async function checkSignature(publicKey, label, body, signature) {
  const key = await subtle.importKey("raw", publicKey, "Ed25519", false, ["verify"]);
  demand(await subtle.verify("Ed25519", key, signature, concat(label, [0], body)), "a signature", "UNAUTHENTICATED");
}

/** The answer to a request, still padded, by the key that the request carried. */
export const openAnswer = (data, answerKey) =>
  aesGcm("decrypt", answerKey, data.slice(0, 12), data.slice(12), concat("tacit/request/1"))
    .catch(() => refuse("UNOPENABLE", "expected another answer or key"));
