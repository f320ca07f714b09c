/** What tests of the device share: golden vectors, keys that are given, and refusals by their reason. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import { Refused, concat, unhex } from "../../device/bytes.js";

export const readVectors = (name) => JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url)));

/** The X25519 key pair of a private key's 32 bytes, as `seal` takes it for vectors. */
export async function keyPair(privateKey) {
  const pkcs8 = concat(unhex("302e020100300506032b656e04220420"), privateKey);
  const own = await crypto.subtle.importKey("pkcs8", pkcs8, "X25519", true, ["deriveBits"]);
  const { x } = await crypto.subtle.exportKey("jwk", own);
  const publicKey = await crypto.subtle.importKey("raw", Buffer.from(x, "base64url"), "X25519", true, []);
  return { privateKey: own, publicKey };
}

/** Assert that something is refused for this reason, and in no other way. */
export async function assertRefused(reason, act) {
  await assert.rejects(
    async () => act(),
    (fault) => {
      assert.ok(fault instanceof Refused, `expected a refusal, got ${fault}`);
      assert.equal(fault.reason, reason, fault.message);
      return true;
    },
  );
}

/** The same bytes, one bit changed. */
export function flipped(data, at) {
  const changed = data.slice();
  changed[at] ^= 1;
  return changed;
}

/** Another's implementation, where `make test` could install it; its tests skip loudly otherwise. */
export async function oracle(name) {
  try {
    return { found: await import(name), options: {} };
  } catch (fault) {
    if (fault.code !== "ERR_MODULE_NOT_FOUND") throw fault;
    const skip = `${name} IS NOT INSTALLED: nothing is compared with it; \`make test\` installs it where npm and a network are`;
    console.error(`SKIPPED: ${skip}`);
    return { found: undefined, options: { skip } };
  }
}
