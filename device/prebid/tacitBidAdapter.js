/** Prebid.js bid adapter of tacit: for `modules/` of a Prebid build. It makes no request, stores nothing and syncs nobody: it asks
 * the page's own client (bids.js), which chooses on the device, at a price that depends on nothing private. Consent is the client's to
 * decide: what Prebid knows of it is handed on. What was not rendered is put back, and charges nobody. */
import { processBidderRequests, registerBidder } from '../src/adapters/bidderFactory.js';
import { BANNER } from '../src/mediaTypes.js';

const BIDDER_CODE = 'tacit';
const MARGIN_MS = 30; // between our last answer and the end of the auction

/** The page's client; until it is there, a queue of those who wait for it. */
const client = () => (window.tacit ??= { que: [] });

const sizesOf = ({ mediaTypes }) => mediaTypes?.banner?.sizes ?? [];

/** What Prebid knows of consent, as the client reads it. What is not known is left out; the client says no in doubt. */
function signalsOf({ gdprConsent, gppConsent, uspConsent, ortb2 }) {
  const { regs, device } = ortb2 ?? {};
  return {
    gdpr: gdprConsent && (gdprConsent.gdprApplies ?? 1),
    tcString: gdprConsent?.consentString,
    gpp: gppConsent?.gppString,
    gppSid: gppConsent?.applicableSections,
    usPrivacy: uspConsent,
    coppa: regs?.coppa,
    gpc: regs?.ext?.gpc,
    dnt: device?.dnt,
    lmt: device?.lmt
  };
}

export const spec = {
  code: BIDDER_CODE,
  supportedMediaTypes: [BANNER],

  isBidRequestValid: (bid) => sizesOf(bid).length > 0,

  /** What the client is asked, one question for each bid; they are no requests of a server, and Prebid could send none of them. */
  buildRequests: (bids, bidderRequest) => bids.map((bid) => ({
    requestId: bid.bidId,
    code: bid.adUnitCode,
    sizes: sizesOf(bid),
    context: bid.params?.context,
    signals: signalsOf(bidderRequest)
  })),

  interpretResponse: ({ body }) => body.filter(Boolean).map(({ requestId, ad, markup, campaign, domain, ...bid }) => ({
    ...bid,
    requestId,
    ad: markup,
    creativeId: String(campaign),
    mediaType: BANNER,
    meta: { advertiserDomains: [domain], mediaType: BANNER },
    tacitAd: ad
  })),

  /** Only what Prebid has rendered was shown. */
  onAdRenderSucceeded: ({ tacitAd }) => client().confirmShown(tacitAd).catch(() => {})
};

/** Answers in the place of a server, within the auction's time. */
processBidderRequests.before((next, asked, bids, bidderRequest, ajax, wrapCallback, callbacks) => {
  if (asked.buildRequests !== spec.buildRequests) {
    next(asked, bids, bidderRequest, ajax, wrapCallback, callbacks);
    return;
  }
  const { onResponse, onBid, onCompletion } = callbacks;
  const patience = Math.max(0, bidderRequest.timeout - MARGIN_MS);
  const by = Date.now() + patience;
  let isOver = false;
  const answer = wrapCallback((body) => {
    if (isOver) return body.forEach((bid) => bid && client().putBack(bid.ad));
    isOver = true;
    onResponse({ body, headers: { get: () => null } });
    spec.interpretResponse({ body }).forEach(onBid);
    onCompletion();
  });
  setTimeout(() => isOver || answer([]), patience);
  const questions = spec.buildRequests(bids, bidderRequest);
  client().que.push(() => Promise.all(questions.map((question) => client().bid({ ...question, by })
    .then((bid) => bid && { ...bid, requestId: question.requestId }, () => null))).then(answer));
});

registerBidder(spec);
