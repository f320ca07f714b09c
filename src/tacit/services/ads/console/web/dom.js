// Elements made of values, and a tree brought up to date in place. Text is always text: nothing here, or in any
// other module, turns a string into markup.

/** @typedef {Node | string | number | null | undefined | false} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with attributes and children; attributes that are null, undefined or false are left out.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * The same of SVG.
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {Record<string, string | number | boolean | null | undefined>} attributes
 * @param {(Child | Child[])[]} children
 * @returns {E}
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(2)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/**
 * Make the children of `target` those of `wanted`, changing what differs and nothing else: focus, selections,
 * places of scroll boxes and opened details stay. Events are heard at the root, so nothing hangs on old nodes.
 * @param {Element} target
 * @param {Node[]} wanted
 */
export function update(target, wanted) {
  const there = [...target.childNodes];
  wanted.forEach((node, place) => {
    const old = there[place];
    if (!old) target.append(node);
    else if (isAlike(old, node)) bring(old, node);
    else old.replaceWith(node);
  });
  there.slice(wanted.length).forEach((node) => node.remove());
}

/** @param {Node} old @param {Node} node */
function isAlike(old, node) {
  if (old.nodeType !== node.nodeType || old.nodeName !== node.nodeName) return false;
  if (!(old instanceof Element) || !(node instanceof Element)) return true;
  return old.getAttribute("data-key") === node.getAttribute("data-key");
}

/** @param {Node} old @param {Node} node */
function bring(old, node) {
  if (!(old instanceof Element) || !(node instanceof Element)) {
    if (old.nodeValue !== node.nodeValue) old.nodeValue = node.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    const kept = name === "open" && old.nodeName === "DETAILS";
    if (!node.hasAttribute(name) && !kept) old.removeAttribute(name);
  }
  for (const { name, value } of node.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  update(old, [...node.childNodes]);
  // What somebody typed or chose is a property, which attributes no longer move.
  if (old instanceof HTMLInputElement && old.type === "checkbox") old.checked = node.hasAttribute("checked");
  else if (old instanceof HTMLInputElement || old instanceof HTMLSelectElement) {
    const given = node.getAttribute("data-value") ?? node.getAttribute("value");
    if (document.activeElement !== old && given !== null && old.value !== given) old.value = given;
  }
}
