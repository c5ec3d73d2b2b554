// @ts-check
// The console: shows what Treadle does and has done, and lets people decide. The server knows everything; this page
// asks, shows and passes decisions on.

import { live } from "../shared/stream.js";
import { html, KeyHelp, nextTheme, onKeys, render, theme, useEffect, useLayoutEffect, useState } from "../shared/ui.js";
import { address, go, takeClicks, usePlace } from "./address.js";
import { Approvals, Proposals } from "./decide.js";
import { Evals } from "./evals.js";
import { Keys } from "./keys.js";
import { shortId, useChanges, useLoaded, useMe } from "./parts.js";
import { Run } from "./run.js";
import { Runs, Session, Sessions } from "./runs.js";
import { Guests, Tools, Upstreams } from "./things.js";

/** @typedef {{name: string, key: string, title: string, all: any, one: any}} View */

/** @type {[string, any, any?][]} what shows all of something, and what shows one */
const SHOWN_BY = [
  ["Runs", Runs, Run],
  ["Sessions", Sessions, Session],
  ["Approvals", Approvals],
  ["Facts", Proposals],
  ["Tools", Tools],
  ["Upstreams", Upstreams],
  ["Guests", Guests],
  ["Keys", Keys],
  ["Evals", Evals],
];

/** @type {View[]} */
const VIEWS = SHOWN_BY.map(([title, all, one = all], n) => ({ name: title.toLowerCase(), key: String(n + 1), title, all, one }));

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
    document.title = `${place.id ? `${shortId(place.id)} · ` : ""}${view.title} · Treadle console`;
  }, [view, place.id]);
  const changeTheme = () => setColours(nextTheme());
  useLayoutEffect(() => onKeys({
    ...Object.fromEntries(VIEWS.map((one) => [one.key, () => go(address([one.name]))])),
    "/": seek,
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
    <main id="view" tabindex="-1"><${place.id ? view.one : view.all} place=${place} key=${`${view.name} ${Boolean(place.id)}`} /></main>
    ${helps && html`<${KeyHelp} keys=${KEYS} onClose=${() => setHelps(false)} />`}
  `;
}

/** @param {KeyboardEvent} event */
function seek(event) {
  /** @type {HTMLInputElement | null} */
  const field = document.querySelector("[data-find]");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
}

/** @param {{current: string}} props */
function Tabs({ current }) {
  const approvals = useLoaded("/treadle/v1/approvals?status=pending&limit=100");
  const proposals = useLoaded("/treadle/v1/proposals?status=open&limit=100");
  useChanges(["approval"], approvals.reload);
  useChanges(["proposal"], proposals.reload);
  /** @type {Record<string, number>} */
  const counts = { approvals: approvals.data?.approvals?.length ?? 0, facts: proposals.data?.proposals?.length ?? 0 };
  const { isAdmin } = useMe();
  // What an admin may see, and what there is to decide, is known later and moves the other tabs.
  useEffect(() => document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [current, isAdmin, counts.approvals, counts.facts]);
  return html`<nav class="tabs" aria-label="Views">${VIEWS.filter((one) => isAdmin || one.name !== "keys").map((one) => html`<a key=${one.name} href=${address([one.name])}
    aria-current=${one.name === current ? "page" : null}>${one.title}${counts[one.name] > 0 && html` <b class="badge"
    aria-label=${`${counts[one.name]} to decide`}>${counts[one.name] < 100 ? counts[one.name] : "99+"}</b>`}</a>`)}</nav>`;
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
