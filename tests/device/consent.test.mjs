import assert from "node:assert/strict";
import { test } from "node:test";

import { decideConsent, watchConsent } from "../../device/consent.js";
import { assertRefused, oracle, readVectors } from "./support.mjs";

const { bad_vendors: badVendors, cases } = readVectors("device_consent_v1");
const said = Object.fromEntries(cases.map(({ name, signals }) => [name, signals]));
const AGREED = said["a string alone"].tcString, [CORE] = AGREED.split(".");
const why = (signals) => decideConsent({ vendor: 755, ...signals }).why;

test(`decides all ${cases.length} cases as Python does`, () => {
  for (const { name, signals, why: expected } of cases)
    assert.deepEqual(decideConsent(signals), { personal: expected === "ALLOWED", why: expected }, name);
});

test("what is not said may be undefined or null", () => {
  for (const unsaid of [undefined, null]) {
    const nothing = Object.fromEntries("gdpr tcString gpp gppSid usPrivacy coppa lmt dnt gpc atts".split(" ").map((name) => [name, unsaid]));
    assert.equal(why(nothing), "UNSAID");
    assert.equal(why({ ...nothing, gdpr: 0 }), "ALLOWED");
    assert.equal(why({ ...nothing, tcString: AGREED }), "ALLOWED");
    assert.equal(decideConsent({ ...nothing, tcString: AGREED, vendor: unsaid }).why, "NO_VENDOR");
  }
});

test("what is no vendor is refused", async () => {
  for (const vendor of [...badVendors, NaN, Infinity, "", [755]]) await assertRefused("MALFORMED", () => decideConsent({ vendor }));
});

test("strings beyond 65,536 characters are refused, whatever they say", () => {
  const padded = CORE + "A".repeat(65_536 - CORE.length), [head, ...sections] = `DBABMA~${CORE}`.split("~");
  assert.equal(why({ tcString: padded }), "ALLOWED");
  assert.equal(why({ tcString: padded + "A" }), "UNREADABLE");
  assert.equal(why({ tcString: `${CORE}.${"Y" + "A".repeat(65_536 - CORE.length)}` }), "UNREADABLE");
  const gpp = [head, ...sections].join("~") + "A".repeat(65_536 - 7 - CORE.length);
  assert.equal(gpp.length, 65_536);
  assert.equal(why({ gpp, gppSid: [2] }), "ALLOWED");
  assert.equal(why({ gpp: gpp + "A", gppSid: [2] }), "UNREADABLE");
  assert.equal(why({ tcString: "C".repeat(70_000) }), "UNREADABLE");
});

test("whatever comes is decided, and garbage is never a yes", () => {
  const letters = "ABCDEGIgPQ-_.~1YN é";
  const words = crypto.getRandomValues(new Uint8Array(60_000));
  for (let at = 0; at + 60 <= words.length; at += 60) {
    const text = Array.from(words.subarray(at + 1, at + 1 + (words[at] % 59)), (word) => letters[word % letters.length]).join("");
    for (const signals of [{ gdpr: 1, tcString: text || "-" }, { gpp: text }, { usPrivacy: text || "-" }, { gpp: `DBABzw~${text}` }]) {
      const found = decideConsent({ vendor: 755, ...signals });
      assert.equal(found.personal && !/^1YN[YN-]$/.test(text), false, text);
    }
  }
});

test("one changed character never makes a yes of a no", () => {
  const refused = said["tcf, nothing agreed"].tcString;
  for (let place = 0; place < refused.length; place++)
    for (const letter of "ABCQ_.~ é") {
      const tcString = refused.slice(0, place) + letter + refused.slice(place + 1);
      assert.notEqual(why({ gdpr: 1, tcString }), "ALLOWED", `${place} ${letter}`);
    }
});

/** A page whose consent platform says what it is told to. */
function page(browser = {}) {
  const scope = { navigator: browser }, heard = [];
  return { scope, heard, watch: () => watchConsent(scope, (signals) => heard.push(signals)) };
}

test("a page without a platform says nothing, but what the browser does", () => {
  for (const [browser, expected] of [
    [{}, "UNSAID"], [{ globalPrivacyControl: true }, "OPTED_OUT"], [{ globalPrivacyControl: false }, "UNSAID"],
    [{ doNotTrack: "1" }, "LIMITED"], [{ doNotTrack: "0" }, "UNSAID"], [{ doNotTrack: null }, "UNSAID"],
  ]) {
    const { heard, watch } = page(browser);
    watch();
    assert.deepEqual(heard.map(why), [expected]);
  }
  const none = [];
  watchConsent({}, (signals) => none.push(why(signals)));
  assert.deepEqual(none, ["UNSAID"]);
});

test("a platform of the TCF is a no until it knows, and is listened to", () => {
  const { scope, heard, watch } = page();
  let tell;
  scope.__tcfapi = (command, version, callback) => {
    assert.deepEqual([command, version], ["addEventListener", 2]);
    tell = callback;
  };
  watch();
  tell({ eventStatus: "cmpuishown", gdprApplies: true, tcString: AGREED }, true);
  tell({ eventStatus: "useractioncomplete", gdprApplies: true, tcString: AGREED }, true);
  tell({ eventStatus: "tcloaded", gdprApplies: false, tcString: "" }, true);
  tell({ eventStatus: "tcloaded", gdprApplies: true, tcString: said["tcf, nothing agreed"].tcString }, true);
  tell({ eventStatus: "tcloaded", gdprApplies: true }, true);
  tell({ eventStatus: "tcloaded", tcString: AGREED }, true);
  tell(null, false);
  assert.deepEqual(heard.map(why), ["MISSING", "ALLOWED", "ALLOWED", "NOT_GIVEN", "MISSING", "ALLOWED", "MISSING"]);
});

test("a platform of the GPP is a no until its signals are ready, and is listened to", () => {
  const { scope, heard, watch } = page({ globalPrivacyControl: false });
  let tell;
  scope.__gpp = (command, callback) => {
    assert.equal(command, "addEventListener");
    tell = callback;
  };
  watch();
  const ping = (signalStatus, gppString, applicableSections) => ({ eventName: "signalStatus", pingData: { signalStatus, gppString, applicableSections } });
  const { gpp } = said["gpp of 2, 6 and 7, applying unsaid"];
  tell(ping("not ready", gpp, [7]), true);
  tell({ eventName: "listenerRegistered", data: true }, true);
  assert.deepEqual(heard.splice(0).map(why), ["UNREADABLE"]);
  for (const sections of [[7], [8], [-1], []]) tell(ping("ready", gpp, sections), true);
  tell(ping("ready", "", [7]), true);
  tell(null, false);
  assert.deepEqual(heard.map(why), ["ALLOWED", "UNKNOWN_SECTION", "UNSAID", "UNSAID", "MISSING", "UNREADABLE"]);
});

test("a platform that does not know, fails or says nothing is a no", () => {
  for (const tcString of [undefined, ""]) {
    const { scope, heard, watch } = page();
    scope.__tcfapi = (_, __, callback) => callback({ eventStatus: "tcloaded", tcString }, true);
    watch();
    assert.deepEqual(heard.map(why), ["MISSING", "MISSING"]);
  }
  const { scope, heard, watch } = page();
  scope.__tcfapi = (_, __, callback) => {
    callback(null, true);
    throw new Error("of the platform");
  };
  scope.__gpp = () => {
    throw new Error("of the platform");
  };
  watch();
  assert.deepEqual(heard.map(why), ["MISSING", "MISSING"].map(() => "UNREADABLE"));
});

test("of two platforms both must have spoken", () => {
  const { scope, heard, watch } = page();
  const calls = {};
  scope.__tcfapi = (_, __, callback) => callback({ eventStatus: "tcloaded", gdprApplies: true, tcString: AGREED }, true);
  scope.__gpp = (_, callback) => (calls.gpp = callback);
  watch();
  assert.deepEqual(heard.splice(0).map(why), ["UNREADABLE", "UNREADABLE"]);
  calls.gpp({ pingData: { signalStatus: "ready", gppString: said["gpp of 6 with an opt-out, applying unsaid"].gpp, applicableSections: [6] } }, true);
  assert.deepEqual(heard.map(why), ["OPTED_OUT"]);
});

const tcf = await oracle("@iabtcf/core");
const VENDORS = Object.fromEntries(Array.from({ length: 800 }, (_, at) => [at + 1, {
  id: at + 1, name: `${at + 1}`, purposes: [1, 2, 3, 4, 9, 10], legIntPurposes: [7], flexiblePurposes: [2, 7], specialPurposes: [], features: [],
  specialFeatures: [], policyUrl: "", usesCookies: true, cookieMaxAgeSeconds: 1, cookieRefresh: false, usesNonCookieAccess: false,
  dataRetention: {}, urls: [], dataDeclaration: [],
}]));

/** A vendor list as the oracle wants one; nothing in it is anybody's. */
function vendorList({ GVL }) {
  const names = (count) => Object.fromEntries(Array.from({ length: count }, (_, at) => [at + 1, { id: at + 1, name: "", description: "", illustrations: [] }]));
  return new GVL({
    gvlSpecificationVersion: 3, vendorListVersion: 100, tcfPolicyVersion: 5, lastUpdated: "2024-01-01T00:00:00Z", purposes: names(11),
    specialPurposes: names(3), features: names(3), specialFeatures: names(2), stacks: {}, dataCategories: {}, vendors: VENDORS,
  });
}

test("strings that another's encoder writes are decided by what its decoder reads in them", tcf.options, () => {
  const { PurposeRestriction, RestrictionType, TCModel, TCString } = tcf.found, words = crypto.getRandomValues(new Uint8Array(4_000));
  const counts = { ALLOWED: 0, NOT_GIVEN: 0 };
  let at = 0, restricted = 0;
  const chance = (percent) => (words[at++] * 100) / 256 < percent;
  for (let round = 0; round < 120; round++) {
    const model = new TCModel(vendorList(tcf.found));
    Object.assign(model, { cmpId: 10, cmpVersion: 1, consentLanguage: "DE", publisherCountryCode: "DE", isServiceSpecific: true });
    const purposes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].filter(() => chance(92)), interests = [2, 7].filter(() => chance(50));
    const consents = chance(90), based = chance(60), disclosed = chance(90), restriction = chance(30) ? words[at++] % 3 : null, purpose = [2, 7][words[at++] % 2];
    const crowd = chance(50) ? Array.from({ length: 400 }, (_, each) => each * 2 + 1) : [3];
    model.purposeConsents.set(purposes);
    model.purposeLegitimateInterests.set(interests);
    model.vendorConsents.set([...crowd.filter((each) => each !== 755), ...(consents ? [755] : [])]);
    model.vendorLegitimateInterests.set(based ? [2, 755] : [2]);
    model.vendorsDisclosed.set([...crowd.filter((each) => each !== 755), ...(disclosed ? [755] : [])]);
    if (restriction !== null) model.publisherRestrictions.add(755, new PurposeRestriction(purpose, restriction));
    const tcString = TCString.encode(model, { segments: ["core", "vendorsDisclosed"] });
    const back = TCString.decode(tcString), kinds = back.publisherRestrictions.getRestrictions(755);
    const barred = (purpose, kind) => kinds.some((each) =>
      each.purposeId === purpose && [RestrictionType.NOT_ALLOWED, kind].includes(each.restrictionType));
    const agreed = (each) => back.vendorConsents.has(755) && back.purposeConsents.has(each) && !barred(each, RestrictionType.REQUIRE_LI);
    const isBased = (each) => back.vendorLegitimateInterests.has(755) && back.purposeLegitimateInterests.has(each);
    const yes = back.vendorsDisclosed.has(755) && [1, 3, 4].every(agreed) &&
      [2, 7].every((each) => agreed(each) || (isBased(each) && !barred(each, RestrictionType.REQUIRE_CONSENT)));
    restricted += kinds.length;
    assert.equal(why({ gdpr: 1, tcString }), yes ? "ALLOWED" : "NOT_GIVEN", tcString);
    counts[yes ? "ALLOWED" : "NOT_GIVEN"]++;
  }
  assert.ok(counts.ALLOWED && counts.NOT_GIVEN && restricted, JSON.stringify({ ...counts, restricted }));
});

const gpp = await oracle("@iabgpp/cmpapi");

/** The US national section's fields, as the oracle names them: an adult who was told, and opted out of nothing. */
const NATIONAL = {
  SharingNotice: 1, SaleOptOutNotice: 1, SharingOptOutNotice: 1, TargetedAdvertisingOptOutNotice: 1, SensitiveDataProcessingOptOutNotice: 0,
  SensitiveDataLimitUseNotice: 0, SaleOptOut: 2, SharingOptOut: 2, TargetedAdvertisingOptOut: 2, PersonalDataConsents: 0,
  MspaCoveredTransaction: 2, MspaOptOutOptionMode: 0, MspaServiceProviderMode: 0, Gpc: false,
};

test("another's platform is heard through the page, and its strings are decided by their fields", gpp.options, () => {
  globalThis.window = { navigator: { globalPrivacyControl: false }, __gpp: () => [] };
  try {
    const platform = new gpp.found.CmpApi(10, 1), heard = [];
    watchConsent(globalThis.window, (signals) => heard.push(why(signals)));
    assert.deepEqual(heard, ["UNREADABLE"]);
    const says = (fields, sections = [7]) => {
      platform.setSignalStatus("not ready");
      for (const [name, value] of Object.entries({ ...NATIONAL, ...fields })) platform.setFieldValue("usnat", name, value);
      platform.setApplicableSections(sections);
      platform.setSignalStatus("ready");
      return heard.at(-1);
    };
    assert.equal(says({}), "ALLOWED");
    for (const [name, value] of [
      ["SharingNotice", 2], ["SaleOptOutNotice", 2], ["SharingOptOutNotice", 2], ["TargetedAdvertisingOptOutNotice", 2],
      ["TargetedAdvertisingOptOutNotice", 0], ["SaleOptOut", 1], ["SharingOptOut", 1], ["TargetedAdvertisingOptOut", 1],
      ["TargetedAdvertisingOptOut", 0], ["PersonalDataConsents", 1], ["MspaServiceProviderMode", 1], ["Gpc", true],
      ["KnownChildSensitiveDataConsents", [1, 0, 0]], ["KnownChildSensitiveDataConsents", [0, 2, 0]],
    ]) {
      const before = platform.getFieldValue("usnat", name);
      assert.equal(says({ [name]: value }), "OPTED_OUT", `${name} ${value}`);
      assert.equal(says({ [name]: before }), "ALLOWED", `${name} ${before}`);
    }
    platform.setFieldValue("uspv1", "Notice", "Y");
    platform.setFieldValue("uspv1", "OptOutSale", "N");
    platform.setFieldValue("uspv1", "LspaCovered", "N");
    assert.equal(says({}, [6, 7]), "ALLOWED");
    assert.equal(says({}, [6]), "ALLOWED");
    platform.setFieldValue("uspv1", "OptOutSale", "Y");
    assert.equal(says({}, [6, 7]), "OPTED_OUT");
    platform.setFieldValue("usca", "SaleOptOut", 2);
    assert.equal(says({}, [7]), "ALLOWED");
    assert.equal(says({}, [7, 8]), "UNKNOWN_SECTION");
    assert.equal(says({}, [-1]), "UNSAID");
  } finally {
    delete globalThis.window;
  }
});
