// @ts-check
// What this browser remembers from one visit to the next: the list of chats, and the model last used. Never what
// was said: that is with the server. A browser that allows no storage remembers nothing, and that is no error.

/**
 * @typedef {{id: string, title: string, model: string, lastId: string}} Row
 * @typedef {{model: string, isTyped: boolean, rows: Row[]}} Memory
 */

const KEY = "treadle.chats";
const OPEN_KEY = "treadle.open";
const ROWS_MAX = 100;

/** @returns {Memory} */
export function recall() {
  const said = read(KEY);
  const rows = Array.isArray(said?.rows) ? said.rows.filter(isRow) : [];
  return { model: typeof said?.model === "string" ? said.model : "", isTyped: said?.isTyped === true, rows };
}

/**
 * Put a chat first in the list. Another tab may have written meanwhile, so the list is read again.
 * @param {Row} row
 * @returns {boolean} whether it will be known after a reload
 */
export function rememberChat({ id, title, model, lastId }) {
  const memory = recall();
  const others = memory.rows.filter((other) => other.id !== id);
  return write(KEY, { ...memory, rows: [{ id, title, model, lastId }, ...others].slice(0, ROWS_MAX) });
}

/** @param {string} id */
export function forgetChat(id) {
  const memory = recall();
  write(KEY, { ...memory, rows: memory.rows.filter((row) => row.id !== id) });
}

/**
 * @param {string} model
 * @param {boolean} isTyped whether the person wrote it, so that no list need have it
 */
export function rememberModel(model, isTyped) {
  write(KEY, { ...recall(), model, isTyped });
}

/** Name the chat that this tab shows; a new tab has none. */
export function openChat() {
  try {
    return sessionStorage.getItem(OPEN_KEY);
  } catch {
    return null;
  }
}

/** @param {string} id */
export function rememberOpen(id) {
  try {
    sessionStorage.setItem(OPEN_KEY, id);
  } catch {
    // The next visit begins with a new chat.
  }
}

/** Tell whether the browser keeps anything at all. */
export function canRemember() {
  return write(KEY, recall());
}

/**
 * Call back when another tab has changed the list.
 * @param {() => void} callback
 */
export function onOtherTab(callback) {
  addEventListener("storage", (event) => {
    if (event.key === KEY) callback();
  });
}

/** @param {any} row */
function isRow(row) {
  return ["id", "title", "model", "lastId"].every((field) => typeof row?.[field] === "string");
}

/** @param {string} key */
function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/**
 * @param {string} key
 * @param {Memory} value
 */
function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
