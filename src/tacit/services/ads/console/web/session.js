// Who is signed in, and what is asked of the ad server for them. The key is kept in memory and, so that a reload
// finds it, in the tab's sessionStorage; it goes out in one header and never stands in an address.

const PLACE = "tacit-console-key";
const PATIENCE_MS = 15_000;

/**
 * @typedef {object} Who
 * @property {string} key_id
 * @property {string} role
 * @property {string | null} advertiser
 * @property {boolean} changes whether the key may change anything
 * @property {boolean} sees_all
 * @property {number | null} ends
 * @property {boolean} synthetic
 * @property {string} version
 */

/** The server did not answer, or not in time. */
export class Unreachable extends Error {}

/** The key does not hold, or no longer. */
export class NotSignedIn extends Error {}

/** The server said no, in its own words. */
export class Refused extends Error {
  /** @param {number} status @param {string} words */
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export class Session {
  /** @type {string} */
  #key = "";
  /** @type {Who | null} */
  who = null;

  constructor() {
    try {
      this.#key = sessionStorage.getItem(PLACE) ?? "";
    } catch {
      this.#key = ""; // a browser that keeps nothing: the key lives as long as the page
    }
  }

  get hasKey() {
    return this.#key !== "";
  }

  /** Try a key; it is kept only if it holds. @param {string} key */
  async signIn(key) {
    this.#key = key.trim();
    try {
      this.who = /** @type {Who} */ (await this.get("/ads/console/session"));
    } catch (problem) {
      this.#key = "";
      throw problem;
    }
    try {
      sessionStorage.setItem(PLACE, this.#key);
    } catch {
      // as above
    }
  }

  /** What a reload found. */
  async resume() {
    this.who = /** @type {Who} */ (await this.get("/ads/console/session"));
  }

  forget() {
    this.#key = "";
    this.who = null;
    try {
      sessionStorage.removeItem(PLACE);
    } catch {
      // as above
    }
  }

  /** @param {string} path @returns {Promise<any>} */
  async get(path) {
    return this.#ask("GET", path);
  }

  /** @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers] */
  async send(method, path, body, headers = {}) {
    return this.#ask(method, path, body, headers);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {unknown} [body]
   * @param {Record<string, string>} [headers]
   */
  async #ask(method, path, body, headers = {}) {
    let answer;
    try {
      answer = await fetch(path, {
        method,
        headers: {
          ...headers,
          accept: "application/json",
          authorization: `Bearer ${this.#key}`,
          ...(body === undefined ? {} : { "content-type": "application/json" }),
        },
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout(PATIENCE_MS),
      });
    } catch {
      throw new Unreachable("The ad server does not answer.");
    }
    if (answer.status === 401) throw new NotSignedIn("This key does not hold.");
    const told = await answer.json().catch(() => null);
    if (!answer.ok) {
      if (answer.status >= 500) throw new Unreachable("The ad server cannot answer now.");
      throw new Refused(
        answer.status,
        told?.detail || told?.title || `The ad server refused it (${answer.status}).`,
      );
    }
    return told;
  }
}
