/** What Prebid is handed to write: texts stay texts, images fit, and nothing runs. */
import assert from "node:assert/strict";
import test from "node:test";

import { fit, markupOf } from "../../device/prebid/markup.js";

const text = { media: "text/plain", title: "Beans", text: "Roasted today", address: "https://roasters.example/", content: null, width: null, height: null };
const image = { ...text, media: "image/png", content: new Uint8Array([1, 2, 255]), width: 300, height: 250 };
const page = { ...text, media: "text/html", content: new TextEncoder().encode("<p>Beans &amp; ${AUCTION_PRICE}</p>") };
const unescape = (spelled) => spelled.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code));
const documentOf = (markup) => unescape(/srcdoc="([^"]*)"><\/iframe>$/.exec(markup)[1]);

test("an image is offered at exactly its size, a text from 120 x 50 on", () => {
  assert.deepEqual(fit([text, image], [[728, 90], [300, 250]]), { creative: image, width: 300, height: 250 });
  assert.deepEqual(fit([text, image], [[728, 90]]), { creative: text, width: 728, height: 90 });
  assert.deepEqual(fit([text], [[88, 31], [320, 50]]), { creative: text, width: 320, height: 50 });
  for (const [creatives, sizes] of [[[image], [[320, 50]]], [[text], [[88, 31]]], [[], [[300, 250]]], [[text], []]])
    assert.throws(() => fit(creatives, sizes), /of one of these sizes/);
  assert.throws(() => fit([{ ...image, media: "image/svg+xml" }], [[300, 250]]), /sizes/);
  assert.equal(fit([{ ...image, content: null }], [[320, 50]]).width, 320, "one whose bytes were left out is a text");
});

test("nothing of an advertiser's text becomes markup, or a macro of Prebid", () => {
  const hostile = `"><script>alert(1)</script><img src=x onerror='alert(2)'>\${AUCTION_PRICE}`;
  const made = markupOf({ creative: { ...text, title: hostile, text: hostile }, width: 300, height: 250 }, hostile);
  assert.match(made, /^<iframe [^<>]*><\/iframe>$/, "one frame, and nothing beside it");
  assert.ok(!made.includes("$"));
  const inner = documentOf(made);
  assert.ok(!/<script|<img/.test(inner));
  assert.equal(unescape(inner).split(hostile).length, 4, "a title, a text and a label");
});

test("a frame runs nothing and loads nothing", () => {
  for (const creative of [text, image, page]) {
    const made = markupOf({ creative, width: 300, height: 250 }, "Ad");
    assert.match(made, / sandbox="allow-popups allow-popups-to-escape-sandbox" /);
    assert.match(documentOf(made), /^<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:;/);
    assert.ok(!/\ballow-(scripts|same-origin|top-navigation)/.test(made));
    assert.match(documentOf(made), /<small>Ad<\/small>/);
  }
  assert.match(documentOf(markupOf({ creative: image, width: 300, height: 250 }, "Ad")), /src="data:image\/png;base64,AQL\/" alt="Beans" width="300" height="250"/);
  const shown = markupOf({ creative: page, width: 300, height: 250 }, "Ad");
  assert.match(documentOf(shown), /<p>Beans &amp; \$\{AUCTION_PRICE\}<\/p>$/);
  assert.ok(!shown.includes("${"));
  for (const address of ["http://roasters.example/", "javascript:alert(1)", "nowhere"])
    assert.throws(() => markupOf({ creative: { ...text, address }, width: 300, height: 250 }, "Ad"));
});
