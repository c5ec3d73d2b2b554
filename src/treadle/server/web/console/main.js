// @ts-check
// The console: shows what Treadle does and has done, and lets people decide. The server knows everything; this page
// asks, shows and passes decisions on.

import { live } from "../shared/stream.js";
import { html, KeyHelp, nextTheme, onKeys, render, theme, useEffect, useLayoutEffect, useState, Waiting } from "../shared/ui.js";
import { address, go, takeClicks, usePlace } from "./address.js";
import { useChanges, useLoaded, useMe } from "./parts.js";
import { Runs, Session, Sessions } from "./runs.js";

/** @typedef {import("./address.js").Place} Place */
/** @typedef {{name: string, key: string, title: string, load: (place: Place) => Promise<any> | any}} View */

/** @type {View[]} views that are not needed at once are fetched when they are looked at */
const VIEWS = [
  { name: "runs", key: "1", title: "Runs", load: (place) => (place.id ? import("./run.js").then((module) => module.Run) : Runs) },
  { name: "sessions", key: "2", title: "Sessions", load: (place) => (place.id ? Session : Sessions) },
  { name: "approvals", key: "3", title: "Approvals", load: () => import("./decide.js").then((module) => module.Approvals) },
  { name: "facts", key: "4", title: "Facts", load: () => import("./decide.js").then((module) => module.Proposals) },
  { name: "tools", key: "5", title: "Tools", load: () => import("./things.js").then((module) => module.Tools) },
  { name: "upstreams", key: "6", title: "Upstreams", load: () => import("./things.js").then((module) => module.Upstreams) },
  { name: "guests", key: "7", title: "Guests", load: () => import("./things.js").then((module) => module.Guests) },
  { name: "keys", key: "8", title: "Keys", load: () => import("./keys.js").then((module) => module.Keys) },
  { name: "evals", key: "9", title: "Evals", load: () => import("./evals.js").then((module) => module.Evals) },
];

/** @type {[string, string][]} */
const KEYS = [
  ["1 … 9", "go to a view"],
  ["/", "search or filter"],
  ["j k", "next and previous in a list, a tree or the cards"],
  ["Enter", "open what is marked"],
  ["← →", "in a run: fold and unfold a round"],
  ["e", "in a run: go to the first error"],
  ["a d", "approve or deny, confirm or reject, what is marked"],
  ["u", "up, from one thing to its list"],
  ["t", "light, dark, or as the system"],
  ["?", "this list"],
];

function App() {
  const place = usePlace();
  const view = VIEWS.find((one) => one.name === place.view) ?? VIEWS[0];
  const [helps, setHelps] = useState(false);
  const [colours, setColours] = useState(theme());
  useEffect(() => {
    document.title = `${place.id ? `${place.id.slice(0, 16)} · ` : ""}${view.title} · Treadle console`;
  }, [view, place.id]);
  const changeTheme = () => setColours(nextTheme());
  useLayoutEffect(() => onKeys({
    ...Object.fromEntries(VIEWS.map((one) => [one.key, () => go(address([one.name]))])),
    "/": find,
    "?": () => setHelps(true),
    t: changeTheme,
    u: () => go(address([view.name])),
  }), [view]);
  return html`
    <a class="skip" href="#view">Skip to the view</a>
    <header class="bar">
      <h1><a href="/" title="To the chat"><img src="/web/icon.svg" alt="" width="24" height="24" /><span>Treadle</span></a></h1>
      <${Tabs} current=${view.name} />
      <${Pulse} />
      <button type="button" class="plain" onClick=${changeTheme} aria-label=${`Colours: ${colours}`} title=${`Colours: ${colours}`}>◐</button>
      <button type="button" class="plain" onClick=${() => setHelps(true)} aria-label="Keyboard" title="Keyboard">?</button>
    </header>
    <main id="view" tabindex="-1"><${Shown} view=${view} place=${place} /></main>
    ${helps && html`<${KeyHelp} keys=${KEYS} onClose=${() => setHelps(false)} />`}
  `;
}

/** @param {KeyboardEvent} event */
function find(event) {
  /** @type {HTMLInputElement | null} */
  const field = document.querySelector("[data-find]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

/** @param {{view: View, place: Place}} props */
function Shown({ view, place }) {
  const [found, setFound] = useState({ name: "", of: /** @type {any} */ (null) });
  const wanted = `${view.name}${place.id ? "/" : ""}`;
  useEffect(() => {
    let isWanted = true;
    Promise.resolve(view.load(place)).then((of) => isWanted && setFound({ name: wanted, of }));
    return () => {
      isWanted = false;
    };
  }, [wanted]);
  return found.name === wanted ? html`<${found.of} place=${place} key=${wanted} />` : html`<${Waiting} label="Opening" />`;
}

/** @param {{current: string}} props */
function Tabs({ current }) {
  const approvals = useLoaded("/treadle/v1/approvals?status=pending&limit=100");
  const proposals = useLoaded("/treadle/v1/proposals?status=open&limit=100");
  useChanges(["approval"], approvals.reload);
  useChanges(["proposal"], proposals.reload);
  useEffect(() => document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [current]);
  /** @type {Record<string, number>} */
  const counts = { approvals: approvals.data?.approvals?.length ?? 0, facts: proposals.data?.proposals?.length ?? 0 };
  const { isAdmin } = useMe();
  return html`<nav class="tabs" aria-label="Views">${VIEWS.filter((one) => isAdmin || one.name !== "keys").map((one) => html`<a key=${one.name} href=${address([one.name])}
    aria-current=${one.name === current ? "page" : null}>${one.title}${counts[one.name] > 0 && html` <b class="badge"
    aria-label=${`${counts[one.name]} to decide`}>${counts[one.name]}</b>`}</a>`)}</nav>`;
}

/** Says whether what is shown is live. */
function Pulse() {
  const [state, setState] = useState(live.state || "open");
  useEffect(() => live.on("state", setState), []);
  const words = state === "open" ? "live" : "not live: the server cannot be reached";
  return html`<span class="pulse" data-state=${state} role="status" title=${words}><span class="unseen">${words}</span></span>`;
}

takeClicks();
const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
