/** What consent strings (TCF 2, GPP 1) allow; in doubt nothing. A yes is not the person's opt-in: both are needed. */
import { demand } from "./bytes.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** Ways to take bits of a text in base64url, from the left. */
function open(text) {
  demand(/^[\w-]{1,65536}$/.test(text));
  let left = Array.from(text, (letter) => LETTERS.indexOf(letter).toString(2).padStart(6, 0)).join("");
  const cut = (size) => {
    const found = left.slice(0, size);
    demand(found.length === size);
    left = left.slice(size);
    return found;
  };
  const take = (size) => parseInt(cut(size), 2);
  const ranges = (vendor, most) => {
    let found = false;
    for (let count = take(12); count; count--) {
      const several = take(1), first = take(16), last = several ? take(16) : first;
      demand(first && first <= last && last <= most);
      found ||= first <= vendor && vendor <= last;
    }
    return found;
  };
  const vendors = (vendor) => {
    const most = take(16);
    return take(1) ? ranges(vendor, most) : cut(most)[vendor - 1] > 0;
  };
  /** A whole number from 1 on: Fibonacci numbers, up to two ones. */
  const step = () => {
    for (let found = 0, value = 1, next = 2, last = 0, count = 32; count; count--) {
      const bit = take(1);
      if (bit && last) return found;
      found += bit * value;
      [value, next, last] = [next, value + next, bit];
    }
    demand();
  };
  return { cut, take, ranges, vendors, step, end: () => demand(!left.includes(1)) };
}

function tcf(text, vendor) {
  const [core, ...others] = text.split("."), seen = [0], barred = [];
  let told = true;
  for (const each of others) {
    const { take, vendors, end } = open(each), kind = take(3);
    demand(kind < 4 && !seen.includes(kind));
    seen.push(kind);
    if (kind === 1) {
      told = vendors(vendor);
      end();
    }
  }
  const { cut, take, ranges, vendors, end } = open(core);
  demand(text.length <= 65536 && take(6) === 2 && take(36) <= take(36));
  cut(74);
  const purposes = cut(24), interests = cut(24), hidden = cut(13)[0] > 0, agreed = vendors(vendor), based = vendors(vendor);
  for (let count = take(12); count; count--) {
    const place = take(8); // a purpose, and a restriction of it in two bits
    demand(place > 3 && place % 4 < 3);
    if (ranges(vendor, 65535)) barred.push(place);
  }
  end();
  if (vendor == null) return "NO_VENDOR";
  const allows = (said, listed, purpose, kind) =>
    listed && said[purpose - 1] > 0 && !barred.includes(4 * purpose) && !barred.includes(4 * purpose + kind);
  const consents = (purpose) => allows(purposes, agreed, purpose, 2);
  const given = [1, 3, 4].every(consents) && [2, 7].every((each) => consents(each) || allows(interests, based, each, 1));
  return given && told && !hidden ? "ALLOWED" : "NOT_GIVEN";
}

function gppSections(text) {
  const [header, ...sections] = text.split("~"), { take, step, end } = open(header), ids = [];
  demand(text.length <= 65536 && take(12) === 193);
  for (let count = take(12), last = 0; count; count--) {
    const several = take(1), first = last + step();
    last = several ? first + step() : first;
    demand(ids.length + last - first < 256);
    for (let id = first; id <= last; id++) ids.push(id);
  }
  end();
  demand(ids.length === sections.length && sections.every(Boolean));
  return new Map(ids.map((id, at) => [id, sections[at]]));
}

function usPrivacy(text) {
  demand(/^1[YN-]{3}$/.test(text));
  return text.startsWith("1YN") ? "ALLOWED" : "OPTED_OUT";
}

/** The US national section, a digit per answer: an adult was told, and opted out of nothing. */
function usNational(text) {
  const [core, signal = "Q", ...more] = text.split("."), { take, end } = open(core), version = take(6), gpc = open(signal);
  demand(version && version < 3 && !more.length && gpc.take(2) === 1);
  const answers = Array.from({ length: 22 + 5 * version }, () => take(2)).join(""), objects = gpc.take(1);
  demand(!answers.includes(3));
  end();
  gpc.end();
  const yes = RegExp(`^[01]{3}1..[02]{2}2.{${8 + 4 * version}}0+[02]..[02]$`);
  return yes.test(answers) && !objects ? "ALLOWED" : "OPTED_OUT";
}

const isOff = (flag) => [undefined, null, 0, false].includes(flag);

function* verdicts({ gdpr, tcString, gpp, gppSid, usPrivacy: us, coppa, lmt, dnt, gpc, atts, vendor }) {
  if (!isOff(coppa)) yield "CHILD";
  if (!isOff(lmt) || !isOff(dnt) || (atts ?? 3) !== 3) yield "LIMITED";
  if (!isOff(gpc) && gpc !== "0") yield "OPTED_OUT";
  const sections = gpp == null ? new Map() : gppSections(gpp), eu = [tcString, sections.get(2)].filter(Boolean);
  const applying = [...(gppSid ?? sections.keys())];
  if (!isOff(gdpr) || applying.includes(2) || (gdpr == null && tcString)) {
    if (!eu.length) yield "MISSING";
    for (const text of eu) yield tcf(text, vendor);
  } else if (gdpr != null) yield "ALLOWED";
  for (const id of applying) {
    const text = sections.get(id), read = id === 6 ? usPrivacy : id === 7 && usNational;
    if (id !== 2 && id !== -1) yield !read ? "UNKNOWN_SECTION" : text ? read(text) : "MISSING";
  }
  const said = us && usPrivacy(us);
  if (said && !us.startsWith("1--")) yield said;
}

/** Whether a choice may be personal: all signals that apply must allow it, and one must. Flags are 1 or 0; `vendor` is the
 * ad server's id in the TCF's list, or null. @returns {{personal: boolean, why: string}} */
export function decideConsent(signals) {
  const { vendor } = signals;
  demand(vendor == null || (Number.isInteger(vendor) && vendor > 0 && vendor < 65536), "a vendor in 1..65535");
  let why = "UNREADABLE";
  try {
    const found = [...verdicts(signals)];
    why = found.find((each) => each !== "ALLOWED") ?? found[0] ?? "UNSAID";
  } catch {}
  return { personal: why === "ALLOWED", why };
}

/** Call back with the signals of a page and its browser, now and when they change: a no until a platform that is there has spoken. */
export function watchConsent(scope, cb) {
  const { globalPrivacyControl, doNotTrack } = scope.navigator ?? {};
  let tcf = scope.__tcfapi && { gdpr: 1 }, gpp = scope.__gpp && { gpp: "" };
  const tell = () => cb({ gpc: globalPrivacyControl ? 1 : 0, dnt: doNotTrack === "1" ? 1 : 0, ...tcf, ...gpp });
  const listen = (platform, ...given) => {
    try {
      scope[platform]?.(...given);
    } catch {} // one that fails has not spoken
  };
  tell();
  listen("__tcfapi", "addEventListener", 2, (said, ok) => {
    if (ok && said?.eventStatus === "cmpuishown") return;
    tcf = ok && said ? { gdpr: said.gdprApplies ?? 1, tcString: said.tcString } : { gdpr: 1 }; // where it does not know, it may apply
    tell();
  });
  listen("__gpp", "addEventListener", (event, ok) => {
    const said = event?.pingData;
    if (ok && said?.signalStatus !== "ready") return;
    gpp = ok ? { gpp: said.gppString || null, gppSid: said.applicableSections } : { gpp: "" };
    tell();
  });
}
