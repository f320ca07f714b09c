/** Ads of this page's device as bids, for tacitBidAdapter.js: chosen when Prebid asks, counted when Prebid has shown them. Of a bid that is
 * not shown nothing is charged, and the next choice at its menu is the same one.
 *
 * openBids({ settings: "/tacit/parties.json", currency: "EUR", context: ["Northport", "Coffee"] }); */
import { decideConsent } from "../consent.js";
import { openTacit } from "../tacit.js";
import { fit, markupOf } from "./markup.js";

const TTL_SECONDS = 120;

/** Open this origin's device as `openTacit` does, and answer Prebid's adapter as `window.tacit`. `currency` is that of the market's prices.
 * @param {object} options those of `openTacit`, and `currency` */
export async function openBids({ currency, consent, ...options }) {
  if (!/^[A-Z]{3}$/.test(currency)) throw new Error("expected the currency of the market's prices, such as EUR");
  const { context: usual, label = "Ad" } = options, waiting = new Map();
  const device = await openTacit({ ...options, consent });
  let agreed = consent === true, told = agreed, last = Promise.resolve();

  /** Whether Prebid's signals, too, leave it at what the person said. */
  const heed = async (signals) => {
    const { personal, why } = decideConsent({ ...signals, vendor: device.vendor }), on = agreed && (personal || why === "UNSAID");
    if (on !== told) await device.setConsent((told = on));
  };

  const putBack = (ad) => {
    waiting.delete(ad);
    return device.putBack(ad);
  };

  async function bid({ code, sizes, context = usual, signals, by }) {
    for (const [ad, each] of waiting) if (each.code === code || each.until < Date.now()) await putBack(ad);
    if (by < Date.now()) return null;
    await heed(signals ?? {});
    const { ad, campaign, priceMicros, creatives } = await device.choose(context);
    try {
      if (campaign === null) {
        await device.confirmShown(ad); // nothing, which is then what was shown
        return null;
      }
      const found = fit(creatives, sizes), { width, height, creative } = found, domain = new URL(creative.address).hostname, markup = markupOf(found, label);
      if (by < Date.now()) throw new Error("expected a choice in time");
      waiting.set(ad, { code, until: Date.now() + 1000 * TTL_SECONDS });
      return { ad, cpm: priceMicros / 1000, currency, width, height, markup, campaign, domain, ttl: TTL_SECONDS, netRevenue: true };
    } catch {
      await putBack(ad);
      return null;
    }
  }

  const tacit = {
    ...device,
    setConsent: (on) => device.setConsent((told = agreed = on === true)),
    /** A bid for one of these sizes, chosen by now; null: none. One after another, as consent may differ. */
    bid: (request) => (last = last.then(() => bid(request), () => bid(request))),
    putBack,
    async confirmShown(ad) {
      waiting.delete(ad);
      await device.confirmShown(ad);
      device.sendReports().catch(() => {});
    },
    que: { push: (act) => void act() },
  };
  const before = window.tacit?.que ?? [];
  window.tacit = tacit;
  before.forEach((act) => act());
  return tacit;
}
