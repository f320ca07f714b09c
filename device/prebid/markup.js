/** A creative as markup that Prebid can write into any frame: in a sandboxed frame of its own, in which nothing runs, nothing is loaded, and
 * links open tabs of their own. */
const SMALLEST = [120, 50]; // that a text is offered for
const IMAGE = /^image\/(png|jpeg|gif|webp|avif)$/;
const HEAD = `<!doctype html><meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer"><base target="_blank">
<style>body{margin:0;font:16px sans-serif}small{position:absolute;right:0;background:#fff;color:#333}</style>`;

/** A text that is no markup, and none of Prebid's macros. */
const escape = (text) => String(text).replace(/[&<>"'$]/g, (letter) => `&#${letter.charCodeAt()};`);

const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

/** A creative and its size, of those that are asked for: an image of exactly that size, else a text or a page from the smallest on. */
export function fit(creatives, sizes) {
  const isImage = ({ content, media }) => content && media !== "text/html", others = creatives.filter((each) => !isImage(each));
  for (const [width, height] of sizes) {
    const creative = creatives.find((each) => isImage(each) && IMAGE.test(each.media) && each.width === width && each.height === height);
    if (creative) return { creative, width, height };
  }
  const size = sizes.find(([width, height]) => width >= SMALLEST[0] && height >= SMALLEST[1]);
  if (!others.length || !size) throw new Error("expected a creative of one of these sizes");
  return { creative: others[0], width: size[0], height: size[1] };
}

/** What Prebid writes. */
export function markupOf({ creative: { media, title, text, address, content }, width, height }, label) {
  if (new URL(address).protocol !== "https:") throw new Error("expected an address of https");
  const link = `<a href="${escape(address)}" rel="noopener noreferrer" referrerpolicy="no-referrer">`;
  let shown = `${link}<strong>${escape(title)}</strong> ${escape(text)}</a>`;
  if (content && media === "text/html") shown = new TextDecoder().decode(content);
  else if (content) shown = `${link}<img src="data:${media};base64,${base64(content)}" alt="${escape(title)}" width="${width}" height="${height}"></a>`;
  const page = escape(`${HEAD}<small>${escape(label)}</small>${shown}`), sandbox = "allow-popups allow-popups-to-escape-sandbox";
  return `<iframe title="${escape(title)}" sandbox="${sandbox}" referrerpolicy="no-referrer" scrolling="no" frameborder="0" width="${width}" height="${height}" srcdoc="${page}"></iframe>`;
}
