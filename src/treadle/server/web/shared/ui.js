// @ts-check
// What the pages' views are made with: elements, dialogs, notes, keys, and how things are written for people.
// Gets data and gives nodes; fetches nothing.

import { Component, h, htm, render, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { sentences } from "./api.js";

export { Component, h, render, useEffect, useLayoutEffect, useRef, useState };
export const html = htm.bind(h);

/** Three dots that say that something comes. @param {{label: string}} props */
export function Waiting({ label }) {
  return html`<p class="thinking" role="status"><span></span><span></span><span></span><em class="unseen">${label}</em></p>`;
}

/**
 * Something to know, and perhaps to do: what happened on one line, what to do about it on the next.
 * @param {{message: string, advice?: string, isBad?: boolean, action?: string, onAction?: (() => void) | null}} props
 */
export function Note({ message, advice = "", isBad = false, action = "Try again", onAction = null }) {
  const [first, ...rest] = sentences(message);
  const lines = [...rest, advice].filter(Boolean);
  return html`
    <div class="note" data-bad=${isBad ? "true" : "false"} role=${isBad ? "alert" : "status"}>
      <div>
        <p>${isBad ? html`<strong>${first}</strong>` : first}</p>
        ${lines.map((line) => html`<p key=${line}>${line}</p>`)}
      </div>
      ${onAction && html`<button type="button" onClick=${onAction}>${action}</button>`}
    </div>
  `;
}

/**
 * Say what went wrong.
 * @param {{of: import("./api.js").Trouble, onAction?: (() => void) | null}} props
 */
export function Failed({ of, onAction = null }) {
  return html`<${Note} message=${of.message} advice=${of.advice} isBad=${true} onAction=${onAction} />`;
}

/**
 * A button that copies a text and says whether it could.
 * @param {{text: () => string, label?: string}} props
 */
export function Copy({ text, label = "Copy" }) {
  const [shown, setShown] = useState(label);
  const copy = async () => {
    const isDone = await copyText(text());
    setShown(isDone ? "Copied" : "Could not copy");
    setTimeout(() => setShown(label), 2000);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${shown}</button>`;
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} whether the clipboard has it; it is closed to pages that come over plain HTTP
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * A modal dialog: the browser keeps the focus in it, closes it on Esc and gives the focus back.
 * @param {{title: string, onClose: () => void, children?: any, wide?: boolean}} props
 */
export function Dialog({ title, onClose, children, wide = false }) {
  const node = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    if (node.current && !node.current.open) node.current.showModal();
  }, []);
  const onClick = (/** @type {MouseEvent} */ event) => event.target === node.current && node.current?.close();
  return html`
    <dialog ref=${node} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose} onClick=${onClick}>
      <div class="sheet">
        <header>
          <h2>${title}</h2>
          <button type="button" class="plain" aria-label="Close" onClick=${() => node.current?.close()}>×</button>
        </header>
        ${children}
      </div>
    </dialog>
  `;
}

/**
 * A table of keys and what they do.
 * @param {{keys: [string, string][], onClose: () => void}} props
 */
export function KeyHelp({ keys, onClose }) {
  return html`<${Dialog} title="Keyboard" onClose=${onClose}>
    <table class="keys"><tbody>
      ${keys.map(([key, what]) => html`<tr key=${key}>
        <th scope="row">${key.split(" ").map((one) => html`<kbd key=${one}>${one}</kbd> `)}</th><td>${what}</td>
      </tr>`)}
    </tbody></table>
  <//>`;
}

/**
 * Call back for keys, named as in KeyboardEvent.key, with "Ctrl+" for Ctrl or Cmd and "Alt+". A bare letter counts
 * only while nobody is writing and no dialog is open.
 * @param {Record<string, (event: KeyboardEvent) => void>} keys
 * @returns {() => void} to be called to listen no more
 */
export function onKeys(keys) {
  const listen = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing || event.defaultPrevented) return;
    const name = `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${event.key}`;
    const isBare = event.key.length === 1 && name === event.key;
    if (!(name in keys) || (isBare && isWriting(event.target)) || document.querySelector("dialog[open]")) return;
    keys[name](event);
  };
  addEventListener("keydown", listen);
  return () => removeEventListener("keydown", listen);
}

/** @param {EventTarget | null} target */
function isWriting(target) {
  return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

/** Pass what was typed or chosen on. @param {(value: string) => void} take */
export const typed = (take) => (/** @type {any} */ event) => take(event.target.value);

/** Draw again every second while that is wanted, and return the time in seconds since 1970. @param {boolean} [isOn] */
export function useClock(isOn = true) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = isOn ? setInterval(() => setNow(Date.now()), 1_000) : 0;
    return () => clearInterval(timer);
  }, [isOn]);
  return now / 1_000;
}

/** Say something to screen readers, when they have finished what they say. @param {string} text */
export function announce(text) {
  let region = document.getElementById("said");
  if (!region) {
    region = Object.assign(document.createElement("div"), { id: "said", className: "unseen", ariaLive: "polite" });
    document.body.append(region);
  }
  region.textContent = text;
}

const THEMES = ["auto", "light", "dark"];

/** The colours now: "auto" are those of the system. */
export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

/** Put on the next colours, for all pages of this browser, and return their name. */
export function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  document.documentElement.dataset.theme = next;
  keep("treadle.theme", next);
  return next;
}

/**
 * Remember something small in this browser; one that allows no storage forgets it, and that is no error.
 * @param {string} key
 * @param {string} value
 */
export function keep(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // It is asked for again next time.
  }
}

/** @param {string} key */
export function kept(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

/** Write a time span. @param {number} ms */
export function duration(ms) {
  if (ms < 1_000) return `${Math.max(1, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const minutes = Math.round(ms / 60_000);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Write how long ago a time was. @param {number} seconds since 1970 @param {number} [now] */
export function ago(seconds, now = Date.now() / 1000) {
  const past = Math.max(0, now - seconds);
  if (past < 45) return "now";
  if (past < 3_600) return `${Math.max(1, Math.round(past / 60))} min ago`;
  if (past < 86_400) return `${Math.round(past / 3_600)} h ago`;
  return new Date(seconds * 1000).toLocaleDateString();
}

/** Write a count in short: 950, 12.4k, 3.1M. @param {number} n */
export function count(n) {
  if (n < 1_000) return String(n);
  return n < 1_000_000 ? `${(n / 1_000).toFixed(n < 100_000 ? 1 : 0)}k` : `${(n / 1_000_000).toFixed(1)}M`;
}

/** Write an amount of US dollars; nothing for an unknown one. @param {number | null | undefined} usd */
export function money(usd) {
  if (usd === null || usd === undefined) return "";
  return usd === 0 || usd >= 0.01 ? `$${usd.toFixed(2)}` : `$${usd.toFixed(4)}`;
}

/** @param {string} source */
function read(source) {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}

/** Write JSON over several lines; what is no JSON stays as it is. @param {string} source */
export function pretty(source) {
  const value = read(source);
  return value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : source;
}

/** Write the fields of a JSON object on one line. @param {string} source */
export function brief(source) {
  const value = read(source);
  if (value === null || typeof value !== "object") return source;
  return Object.entries(value).map(([name, part]) => `${name}: ${typeof part === "string" ? part : JSON.stringify(part)}`).join(", ");
}
