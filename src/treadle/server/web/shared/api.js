// @ts-check
// Talks to the server: JSON in, JSON out, and every failure as a Trouble in words for a person. Knows nothing of what
// is shown. All requests of the pages go through here: they carry the header without which a cookie changes nothing.

/** What went wrong, in words for a person, with what to do about it. */
export class Trouble extends Error {
  /**
   * @param {string} message
   * @param {string} advice
   * @param {number} status of the server's answer; 0 when there was none
   * @param {any} [detail] the server's error object: code, param, hint
   */
  constructor(message, advice, status = 0, detail = null) {
    super(message);
    this.advice = advice;
    this.status = status;
    this.detail = detail;
  }
}

const BACK = "treadle.back";
const UNREACHABLE = "Check that the server is still running, then try again.";

/** @type {Record<number, string>} */
const ADVICE = {
  400: "The request was not understood. Try to word it differently, or start a new chat.",
  403: "You may look, but not do this. Ask for a link with more rights.",
  404: "It may have been deleted.",
  409: "Somebody else was quicker. Reload to see how it stands.",
  413: "The message is too long. Send less at once.",
  429: "The model is busy. Wait a moment, then try again.",
  502: "The model's provider failed. Check its key and address with treadle doctor.",
  503: "The server is busy or restarting. Try again in a moment.",
  504: "The model's provider did not answer in time. Try again.",
};

/**
 * Fetch a JSON document.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function getJson(path, signal) {
  const answer = await request(path, { signal });
  return answer.json();
}

/**
 * Change something: send JSON, get JSON, or null where the answer has no body.
 * @param {"POST" | "PATCH" | "PUT" | "DELETE"} method
 * @param {string} path
 * @param {any} [body]
 * @returns {Promise<any>}
 */
export async function send(method, path, body) {
  const headers = { "content-type": "application/json" };
  const answer = await request(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  return answer.status === 204 ? null : answer.json();
}

/**
 * Make a request; anything but success is a Trouble. Who is not logged in is led to the page that says how.
 * @param {string} path
 * @param {RequestInit} options
 */
export async function request(path, options) {
  const headers = { accept: "application/json", "x-treadle-page": "1", ...options.headers };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Trouble("The server cannot be reached.", UNREACHABLE);
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && location.pathname !== "/login") {
    remember(location.pathname + location.search + location.hash);
    location.assign("/login");
  }
  const said = (await answer.json().catch(() => null))?.error;
  const message = said?.message || `The server answered with status ${answer.status}.`;
  // Where an envelope has no place for a hint the server writes it behind the message; ours would contradict it.
  // One that names a request is for programs.
  const advice = (!/GET \//.test(said?.hint) && said?.hint) || (sentences(message).length > 1 ? "" : ADVICE[answer.status] || "Try again.");
  throw new Trouble(message, advice, answer.status, said);
}

/** @param {string} back where the login was asked for; nothing where the browser stores nothing */
function remember(back) {
  try {
    localStorage.setItem(BACK, back);
  } catch {}
}

/** Return where a login was asked for last, also in another tab: a link from a terminal opens one of its own. */
export function takeBack() {
  try {
    const back = localStorage.getItem(BACK) || "/";
    localStorage.removeItem(BACK);
    return back;
  } catch {
    return "/";
  }
}

/**
 * Split what happened from what to do about it: at the end of the first sentence, if another one follows.
 * @param {string} text
 * @returns {string[]} one or two lines
 */
export function sentences(text) {
  const end = text.search(/(?<=[.!?])\s+(?=[A-Z"'`(])/);
  return end < 0 ? [text] : [text.slice(0, end), text.slice(end).trimStart()];
}

/** @param {unknown} error */
export function asTrouble(error) {
  return error instanceof Trouble ? error : new Trouble("The page could not be set up.", "Reload it.");
}

/** @type {Promise<{name: string, scope: "viewer" | "operator" | "admin", needs_login: boolean}> | null} */
let asked = null;

/** Tell who is looking: the name and scope of this login. Asked once for each page. */
export function me() {
  asked ??= getJson("/treadle/v1/me").catch((error) => {
    asked = null;
    throw error;
  });
  return asked;
}
