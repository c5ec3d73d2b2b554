// @ts-check
// The runs and the sessions: long lists with filters that are kept in the address, and live.

import { ago, announce, count, duration, html, money, Note, useEffect, useRef, useState, Waiting } from "../shared/ui.js";
import { address, refine } from "./address.js";
import { Rows, usePages } from "./lists.js";
import { clock, State, tokens, useChanges, useLoaded } from "./parts.js";

/** @typedef {import("./address.js").Place} Place */

const STATUSES = ["running", "waiting", "requires_action", "completed", "incomplete", "failed", "cancelled"];
/** @type {[string, string][]} */
const TIMES = [["", "any time"], ["3600", "last hour"], ["86400", "last day"], ["604800", "last week"]];
const TYPING_MS = 250;
const NAMES = ["status", "model", "tool", "session", "text", "error"];

/** @param {{place: Place}} props */
export function Runs({ place }) {
  const pages = usePages(runsPath(place.query), "runs");
  useChanges(["run", "gone"], pages.refresh);
  const isNarrowed = [...NAMES, "since"].some((name) => place.query.get(name));
  return html`<section class="view" aria-label="Runs">
    <${RunFilters} query=${place.query} />
    <${Listed} pages=${pages} label="Runs" columns=${COLUMNS} href=${(/** @type {any} */ run) => address(["runs", run.id])}
      empty=${isNarrowed ? "No run fits these filters." : "There is no run yet. Ask something on the chat page or over the API."} />
  </section>`;
}

/** @param {URLSearchParams} query */
function runsPath(query) {
  const wanted = new URLSearchParams();
  for (const name of NAMES) {
    const value = query.get(name);
    if (name === "error" ? value === "any" : value) wanted.set(name, name === "error" ? "" : value ?? "");
  }
  const since = Number(query.get("since"));
  // Rounded to a minute, so that the address of the list does not change with every drawing.
  if (since) wanted.set("since", String(Math.floor((Date.now() / 1000 - since) / 60) * 60));
  return `/treadle/v1/runs?${wanted}`;
}

/** @type {import("./lists.js").Column[]} */
const COLUMNS = [
  { name: "State", kind: "tight", cell: (run) => html`<${State} of=${run.status} />` },
  { name: "Asked", kind: "main", cell: (run) => html`<span class="two"><span>${run.question || html`<em>(nothing said)</em>`}</span>
    <small>${run.id}${run.error ? ` · ${run.error.code}` : run.limit ? ` · limit ${run.limit}` : ""}</small></span>` },
  { name: "Began", kind: "tight", cell: (run) => html`<time datetime=${new Date(run.created_at * 1000).toISOString()} title=${clock(run.created_at)}>${ago(run.created_at)}</time>` },
  { name: "Model", kind: "minor", cell: (run) => html`<span class="two"><span>${run.model}</span><small>${run.protocol}</small></span>` },
  { name: "Rounds", title: "Model calls and tool calls", kind: "minor number", cell: (run) => (run.ended_at ? `${run.rounds} · ${run.calls}` : "…") },
  { name: "Tokens", title: "In / out", kind: "minor number", cell: (run) => tokens(run.usage) },
  { name: "Cost", kind: "minor number", cell: (run) => money(run.cost_usd) },
  { name: "Took", kind: "minor number", cell: (run) => (run.ended_at ? duration((run.ended_at - run.created_at) * 1000) : "…") },
];

/** @param {{query: URLSearchParams}} props */
function RunFilters({ query }) {
  const { data } = useLoaded("/treadle/v1/tools");
  const models = useLoaded("/v1/models").data;
  const choose = (/** @type {string} */ name) => (/** @type {any} */ event) => refine({ [name]: event.target.value });
  const session = query.get("session");
  return html`<form class="filters" role="search" aria-label="Filter the runs" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <${TextFilter} name="text" label="Said or called" value=${query.get("text") ?? ""} />
    <label><span>State</span><select value=${query.get("status") ?? ""} onChange=${choose("status")}>
      <option value="">any</option>${STATUSES.map((name) => html`<option key=${name} value=${name}>${name.replace("_", " ")}</option>`)}
    </select></label>
    <label><span>Began</span><select value=${query.get("since") ?? ""} onChange=${choose("since")}>
      ${TIMES.map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
    </select></label>
    <${NameFilter} name="model" label="Model" value=${query.get("model") ?? ""} names=${(models?.data ?? []).map((/** @type {any} */ one) => one.id)} />
    <${NameFilter} name="tool" label="Tool" value=${query.get("tool") ?? ""} names=${(data?.tools ?? []).map((/** @type {any} */ one) => one.spec.name)} />
    <label class="check"><input type="checkbox" checked=${query.get("error") === "any"}
      onChange=${(/** @type {any} */ event) => refine({ error: event.target.checked ? "any" : "" })} /><span>errors only</span></label>
    ${session && html`<button type="button" class="box" onClick=${() => refine({ session: "" })}>session ${session.slice(0, 14)}… ×</button>`}
  </form>`;
}

/**
 * A field whose text goes into the address a moment after the last key.
 * @param {{name: string, label: string, value: string}} props
 */
export function TextFilter({ name, label, value }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const onInput = (/** @type {any} */ event) => {
    setText(event.target.value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => refine({ [name]: event.target.value.trim() }), TYPING_MS);
  };
  return html`<label class="grow"><span>${label}</span>
    <input type="search" value=${text} onInput=${onInput} data-find="true" placeholder="press / to search" maxlength="500" /></label>`;
}

/** @param {{name: string, label: string, value: string, names: string[]}} props */
function NameFilter({ name, label, value, names }) {
  const all = value && !names.includes(value) ? [value, ...names] : names;
  return html`<label><span>${label}</span><select value=${value} onChange=${(/** @type {any} */ event) => refine({ [name]: event.target.value })}>
    <option value="">any</option>${all.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
  </select></label>`;
}

/**
 * @param {{pages: import("./lists.js").Pages, label: string, columns: import("./lists.js").Column[],
 *   href: (row: any) => string, empty: string}} props
 */
function Listed({ pages, label, columns, href, empty }) {
  const { rows, hasMore, isLoading, trouble, more, refresh } = pages;
  const isEmpty = rows.length === 0;
  useEffect(() => {
    if (!isLoading) announce(isEmpty ? empty : `${rows.length}${hasMore ? " and more" : ""} ${label.toLowerCase()}.`);
  }, [isLoading && isEmpty, isEmpty, label]);
  if (trouble && isEmpty) return html`<${Note} message=${trouble.message} advice=${trouble.advice} isBad=${true} onAction=${refresh} />`;
  if (isEmpty) return isLoading ? html`<${Waiting} label=${`Reading the ${label.toLowerCase()}`} />` : html`<p class="nothing">${empty}</p>`;
  return html`${trouble && html`<${Note} message=${trouble.message} advice=${trouble.advice} isBad=${true} onAction=${refresh} />`}
    <${Rows} rows=${rows} columns=${columns} label=${label} href=${href} hasMore=${hasMore} onMore=${more} />`;
}

/** @param {{place: Place}} props */
export function Sessions({ place }) {
  const search = place.query.get("text") ?? "";
  const pages = usePages(`/treadle/v1/sessions${search && `?search=${encodeURIComponent(search)}`}`, "sessions");
  useChanges(["session", "gone"], pages.refresh);
  return html`<section class="view" aria-label="Sessions">
    <form class="filters" role="search" aria-label="Filter the sessions" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <${TextFilter} name="text" label="Named or said" value=${search} />
    </form>
    <${Listed} pages=${pages} label="Sessions" columns=${SESSION_COLUMNS} href=${(/** @type {any} */ one) => address(["sessions", one.id])}
      empty=${search ? "No session holds that." : "There is no session yet. Each chat on the chat page is one."} />
  </section>`;
}

/** @type {import("./lists.js").Column[]} */
const SESSION_COLUMNS = [
  { name: "Name", kind: "main", cell: (one) => html`<span class="two"><span>${one.name || "(no name)"}</span><small>${one.id}</small></span>` },
  { name: "Used", kind: "tight", cell: (one) => html`<time datetime=${new Date(one.updated_at * 1000).toISOString()} title=${clock(one.updated_at)}>${ago(one.updated_at)}</time>` },
  { name: "Began", kind: "minor", cell: (one) => clock(one.created_at) },
];

/** What was said in a session, and the runs in which. @param {{place: Place}} props */
export function Session({ place }) {
  const path = `/treadle/v1/sessions/${encodeURIComponent(place.id)}`;
  const loaded = useLoaded(`${path}?limit=200`);
  useChanges(["session", "run"], loaded.reload);
  const { data, trouble } = loaded;
  if (trouble) return html`<${Note} message=${trouble.message} advice=${trouble.advice} isBad=${true} onAction=${loaded.reload} />`;
  if (!data) return html`<${Waiting} label="Reading the session" />`;
  return html`<section class="view page" aria-label="Session">
    <h2>${data.name || data.id}</h2>
    <p class="small">${data.id} · used ${ago(data.updated_at)} · ${count(data.messages.length)}${data.has_more ? "+" : ""} entries</p>
    <div class="row actions">
      <a class="box" href=${`/#${encodeURIComponent(data.id)}`}>Open in the chat</a>
      <a class="box" href=${address(["runs"], { session: data.id })}>Its runs</a>
      ${data.head_run_id && html`<a class="box" href=${address(["runs", data.head_run_id])}>Last run</a>`}
      <a class="box" href=${`${path}/export?format=md`} download>Export as Markdown</a>
      <a class="box" href=${`${path}/export`} download>Export as JSON Lines</a>
    </div>
    <ol class="said">${data.messages.map((/** @type {any} */ entry, /** @type {number} */ n) => html`<li key=${n} data-kind=${entry.kind}>
      <b>${entry.kind.replace("_", " ")}${entry.name ? ` · ${entry.name}` : ""}</b><p>${entry.content || "(nothing)"}</p></li>`)}</ol>
  </section>`;
}
