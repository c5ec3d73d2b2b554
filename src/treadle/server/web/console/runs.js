// @ts-check
// The runs and the sessions: long lists with filters that are kept in the address, and live.

import { ago, announce, count, duration, Failed, html, money, useEffect, useLayoutEffect, useRef, useState, Waiting } from "../shared/ui.js";
import { address, here, refine } from "./address.js";
import { Rows, usePages } from "./lists.js";
import { Choice, clock, Filters, shortId, State, tokens, useChanges, useLoaded } from "./parts.js";

/** @typedef {import("./address.js").Place} Place */

const STATUSES = ["running", "waiting", "requires_action", "completed", "incomplete", "failed", "cancelled"];
/** @type {[string, string][]} */
const TIMES = [["", "any time"], ["3600", "last hour"], ["86400", "last day"], ["604800", "last week"]];
const ANY = ["", "any"];
const TYPING_MS = 250;
const NAMES = ["status", "model", "tool", "session", "key", "text", "error"];

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
    <small title=${run.id}>${shortId(run.id)}${run.error ? ` · ${run.error.code}` : run.limit ? ` · limit ${run.limit}` : ""}</small></span>` },
  { name: "Began", kind: "tight", cell: (run) => html`<time datetime=${new Date(run.created_at * 1000).toISOString()} title=${clock(run.created_at)}>${ago(run.created_at)}</time>` },
  { name: "Model", kind: "minor", cell: (run) => html`<span class="two"><span>${run.model}</span><small>${run.protocol}</small></span>` },
  { name: "Rounds", title: "Model calls and tool calls", kind: "minor number", cell: (run) => (run.ended_at ? `${run.rounds} · ${run.calls}` : "…") },
  { name: "Tokens", title: "In / out", kind: "minor number", cell: (run) => tokens(run.usage) },
  { name: "Cost", kind: "minor number", cell: (run) => money(run.cost_usd) },
  { name: "Took", kind: "minor number", cell: (run) => (run.ended_at ? duration((run.ended_at - run.created_at) * 1000) : "…") },
];

/** @param {{query: URLSearchParams}} props */
function RunFilters({ query }) {
  const tools = useLoaded("/treadle/v1/tools").data?.tools ?? [];
  const models = useLoaded("/v1/models").data?.data ?? [];
  const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {any[]} */ options) => {
    const value = query.get(name) ?? "";
    const isKnown = options.some((each) => [each].flat()[0] === value);
    return html`<${Choice} label=${label} value=${value} onChoose=${(/** @type {string} */ chosen) => refine({ [name]: chosen })} options=${isKnown ? options : [...options, value]} />`;
  };
  return html`<${Filters} label="Filter the runs">
    <${TextFilter} name="text" label="Search messages and tool calls" value=${query.get("text") ?? ""} />
    ${choice("status", "State", [ANY, ...STATUSES.map((name) => [name, name.replace("_", " ")])])}
    ${choice("since", "Began", TIMES)}
    ${choice("model", "Model", [ANY, ...models.map((/** @type {any} */ one) => one.id)])}
    ${choice("tool", "Tool", [ANY, ...tools.map((/** @type {any} */ one) => one.spec.name)])}
    <label class="check"><input type="checkbox" checked=${query.get("error") === "any"}
      onChange=${(/** @type {any} */ event) => refine({ error: event.target.checked ? "any" : "" })} /><span>errors only</span></label>
    ${["session", "key"].map((name) => query.get(name) && html`<button type="button" class="box" key=${name} onClick=${() => refine({ [name]: "" })}>${name} ${shortId(query.get(name) ?? "")} ×</button>`)}
  <//>`;
}

/**
 * A field whose text goes into the address a moment after the last key, or with Enter. What somebody types is never
 * taken back: the field follows the address only when that says something which the field did not put there.
 * @param {{name: string, label: string, value: string}} props
 */
export function TextFilter({ name, label, value }) {
  const [text, setText] = useState(value);
  const typed = useRef({ timer: 0, put: value });
  const stop = () => {
    clearTimeout(typed.current.timer);
    typed.current.timer = 0;
  };
  useEffect(() => {
    // The address is asked itself: by the time this runs, what was drawn may be older than what was typed.
    const now = here().query.get(name) ?? "";
    if (now === typed.current.put) return;
    stop();
    typed.current.put = now;
    setText(now);
  }, [value]);
  // At once: whoever leaves before the first paint leaves nothing that waits either.
  useLayoutEffect(() => stop, []);
  const put = (/** @type {any} */ event) => {
    if (!typed.current.timer) return;
    stop();
    typed.current.put = event.target.value.trim();
    refine({ [name]: typed.current.put });
  };
  const onInput = (/** @type {any} */ event) => {
    setText(event.target.value);
    stop();
    typed.current.timer = setTimeout(() => put(event), TYPING_MS);
  };
  return html`<label class="grow"><span>${label}</span>
    <input type="search" value=${text} onInput=${onInput} onKeyDown=${(/** @type {any} */ event) => event.key === "Enter" && put(event)} data-find="true" placeholder="press / to search" maxlength="500" /></label>`;
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
  if (trouble && isEmpty) return html`<${Failed} of=${trouble} onAction=${refresh} />`;
  if (isEmpty) return isLoading ? html`<${Waiting} label=${`Reading the ${label.toLowerCase()}`} />` : html`<p class="nothing">${empty}</p>`;
  return html`${trouble && html`<${Failed} of=${trouble} onAction=${refresh} />`}
    <${Rows} rows=${rows} columns=${columns} label=${label} href=${href} hasMore=${hasMore} onMore=${more} />`;
}

/** @param {{place: Place}} props */
export function Sessions({ place }) {
  const search = place.query.get("text") ?? "";
  const pages = usePages(`/treadle/v1/sessions${search && `?search=${encodeURIComponent(search)}`}`, "sessions");
  useChanges(["session", "gone"], pages.refresh);
  return html`<section class="view" aria-label="Sessions">
    <${Filters} label="Filter the sessions"><${TextFilter} name="text" label="Named or said" value=${search} /><//>
    <${Listed} pages=${pages} label="Sessions" columns=${SESSION_COLUMNS} href=${(/** @type {any} */ one) => address(["sessions", one.id])}
      empty=${search ? "No session holds that." : "There is no session yet. Each chat on the chat page is one."} />
  </section>`;
}

/** @type {import("./lists.js").Column[]} */
const SESSION_COLUMNS = [
  { name: "Name", kind: "main", cell: (one) => html`<span class="two"><span>${one.name || "(no name)"}</span><small title=${one.id}>${shortId(one.id)}</small></span>` },
  { name: "Used", kind: "tight", cell: (one) => html`<time datetime=${new Date(one.updated_at * 1000).toISOString()} title=${clock(one.updated_at)}>${ago(one.updated_at)}</time>` },
  { name: "Began", kind: "minor", cell: (one) => clock(one.created_at) },
];

/** What was said in a session, and the runs in which. @param {{place: Place}} props */
export function Session({ place }) {
  const path = `/treadle/v1/sessions/${encodeURIComponent(place.id)}`;
  const loaded = useLoaded(path);
  useChanges(["session", "run"], loaded.reload);
  const { data, trouble } = loaded;
  if (trouble) return html`<${Failed} of=${trouble} onAction=${loaded.reload} />`;
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
    ${data.has_more && html`<p class="nothing">There is more: the export has all of it.</p>`}
  </section>`;
}
