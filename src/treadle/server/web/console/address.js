// @ts-check
// The address is the state of the page: which view, which thing in it, and the filters. So every view has a link that
// stays, and the browser's own back and forward work.

import { useEffect, useState } from "../shared/ui.js";

/** @typedef {{view: string, id: string, rest: string[], query: URLSearchParams}} Place */

const BASE = "/console";
const MOVED = "treadle-moved";

/** Read a step of a path; what cannot be read stays as it is. @param {string} step */
function decoded(step) {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

/** @returns {Place} where the page is now */
export function here() {
  const steps = location.pathname.slice(BASE.length).split("/").filter(Boolean).map(decoded);
  const [view = "runs", id = "", ...rest] = steps;
  return { view, id, rest, query: new URLSearchParams(location.search) };
}

/**
 * Write the address of a view.
 * @param {string[]} steps
 * @param {Record<string, string>} [query]
 */
export function address(steps, query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== "");
  const search = new URLSearchParams(filled).toString();
  return `${[BASE, ...steps.map(encodeURIComponent)].join("/")}${search && `?${search}`}`;
}

/**
 * Go to an address of the console without loading the page anew.
 * @param {string} path
 * @param {boolean} [isReplaced] whether "back" shall skip the place that is left
 */
export function go(path, isReplaced = false) {
  history[isReplaced ? "replaceState" : "pushState"](null, "", path);
  dispatchEvent(new Event(MOVED));
}

/**
 * Change some of the filters and stay in the view.
 * @param {Record<string, string>} changes
 * @param {boolean} [isReplaced]
 */
export function refine(changes, isReplaced = true) {
  const { query } = here();
  for (const [name, value] of Object.entries(changes)) query.set(name, value);
  const filled = Object.fromEntries(query);
  go(`${location.pathname}${address([], filled).slice(BASE.length)}`, isReplaced);
}

/** Follow the address. @returns {Place} */
export function usePlace() {
  const [now, setNow] = useState(here());
  useEffect(() => {
    const follow = () => setNow(here());
    for (const name of [MOVED, "popstate"]) addEventListener(name, follow);
    return () => [MOVED, "popstate"].forEach((name) => removeEventListener(name, follow));
  }, []);
  return now;
}

/** Let links between the console's own views change the view instead of loading the page. */
export function takeClicks() {
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
    const isOwn = link.origin === location.origin && (link.pathname === BASE || link.pathname.startsWith(`${BASE}/`));
    if (!isOwn) return;
    event.preventDefault();
    go(`${link.pathname}${link.search}`);
  });
}
