// @ts-check
// What Treadle works with: tools and how each may run, upstreams and how each does, guests.

import { asTrouble, send } from "../shared/api.js";
import { ago, count, duration, html, useEffect, useState } from "../shared/ui.js";
import { address } from "./address.js";
import { Code, Facts, Filters, Loading, Pane, State, Table, useLoaded } from "./parts.js";
import { TextFilter } from "./runs.js";

/** @typedef {import("./address.js").Place} Place */

const FRESH_MS = 5_000;

/** Read something again now and then, while it is looked at. @param {string} path */
function useFresh(path) {
  const loaded = useLoaded(path);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || loaded.reload(), FRESH_MS);
    return () => clearInterval(timer);
  }, [path]);
  return loaded;
}

/** @param {{place: Place}} props */
export function Tools({ place }) {
  const loaded = useLoaded("/treadle/v1/tools");
  const text = (place.query.get("text") ?? "").toLowerCase();
  const tools = (loaded.data?.tools ?? []).filter((/** @type {any} */ tool) => `${tool.spec.name} ${tool.source} ${tool.spec.description ?? ""}`.toLowerCase().includes(text));
  const off = loaded.data?.off ?? [];
  return html`<section class="view page" aria-label="Tools">
    <${Filters} label="Filter the tools"><${TextFilter} name="text" label="Name, source or description" value=${place.query.get("text") ?? ""} /><//>
    <${Loading} of=${loaded} label="Reading the tools">
      ${tools.map((/** @type {any} */ tool) => html`<${Tool} key=${tool.spec.name} tool=${tool} isOpen=${place.id === tool.spec.name} />`)}
      ${tools.length === 0 && html`<p class="nothing">${text ? "No tool fits." : "This server runs no tools of its own."}</p>`}
      <${Servers} />
      ${off.length > 0 && html`<h2>Turned off</h2><ul class="plainlist">${off.map((/** @type {any} */ tool) => html`<li key=${tool.name}><code>${tool.name}</code> · ${tool.source} · ${tool.why}</li>`)}</ul>`}
    <//></section>`;
}

/** @param {{tool: any, isOpen: boolean}} props */
function Tool({ tool, isOpen }) {
  const { spec, policy, source } = tool;
  const asks = tool.needs_approval ?? (policy.approval === "always" || (policy.approval === "by_effect" && policy.effect === "destructive"));
  return html`<details class="card thing" open=${isOpen}>
    <summary><code>${spec.name}</code> <span class="small">${source}</span>
      <${State} of=${policy.effect} mood=${policy.effect === "destructive" ? "bad" : policy.effect === "read" ? "good" : "warn"} />
      ${asks && html`<${State} of="asks a person" mood="warn" />`}${tool.sandbox && html`<span class="small">sandbox ${tool.sandbox}</span>`}</summary>
    <p class="text">${spec.description || "(no description)"}</p>
    <p><a href=${address(["runs"], { tool: spec.name })}>Runs that called it</a> · <a href=${address(["tools", spec.name])}>Link</a></p>
    <${Table} label=${`Policy of ${spec.name}`} names=${["Policy", "Value", "Who says so"]}
      rows=${Object.entries(policy).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") || "–" : String(value), tool.why?.[name] ?? ""])} />
    <${Code} text=${JSON.stringify(spec.parameters ?? {}, null, 2)} language="json" label="Parameters" />
  </details>`;
}

/** MCP servers, and their tools that are new or changed: old and new side by side, and the decision. */
function Servers() {
  const loaded = useFresh("/treadle/v1/mcp");
  const [said, setSaid] = useState("");
  const rows = loaded.data?.servers ?? [];
  const decide = async (/** @type {any} */ row, /** @type {any} */ { tool, digest }, /** @type {boolean} */ accept) => {
    try {
      await send("POST", `/treadle/v1/mcp/${encodeURIComponent(row.name)}`, { tool, digest, accept });
      setSaid("");
    } catch (error) {
      setSaid(asTrouble(error).message);
    }
    loaded.reload();
  };
  return rows.length > 0 && html`<h2>MCP servers</h2><p role="alert">${said}</p>
    ${rows.map((/** @type {any} */ row) => html`<article class="card" key=${row.name} aria-label=${row.name}>
      <header><h3>${row.name} <${State} of=${row.state} mood=${row.state === "up" ? "good" : "bad"} /></h3><p class="small">${row.reason}</p></header>
      ${row.waiting.map((/** @type {any} */ one) => html`<h4><code>${one.tool}</code> <span class="small">${one.reason}</span></h4>
        <div class="sides"><${Pane} name="as it was" of=${one.tool} text=${one.before} /><${Pane} name="now" of=${one.tool} text=${one.now} /></div>
        <div class="row actions"><button type="button" class="box" onClick=${() => decide(row, one, true)}>Accept</button>
          <button type="button" class="box" onClick=${() => decide(row, one, false)}>Refuse</button></div>`)}
    </article>`)}`;
}

/** How every upstream does now. */
export function Upstreams() {
  const loaded = useFresh("/treadle/v1/upstreams");
  const models = useLoaded("/v1/models");
  const rows = loaded.data?.upstreams ?? [];
  const named = models.data?.data ?? [];
  return html`<section class="view page" aria-label="Upstreams"><h2>Upstreams</h2>
    <${Loading} of=${loaded} label="Reading the upstreams">
      ${rows.length === 0 && html`<p class="nothing">No upstream is configured: models of this process answer.</p>`}
      ${rows.map((/** @type {any} */ row) => html`<article class="card" key=${row.name} aria-label=${row.name}>
        <header><h3>${row.name} <${State} of=${`breaker ${row.breaker.replace("_", " ")}`} mood=${row.breaker === "closed" ? "good" : row.breaker === "open" ? "bad" : "warn"} /></h3>
          <p class="small">${row.host} · ${row.protocol}</p></header>
        <${Facts} rows=${[
          ["Under way", String(row.live ?? 0)],
          ["Calls", count(row.calls ?? 0)],
          ["Failed", count(row.failures ?? 0)],
          ["Asked again in", row.retry_in_s > 0 ? duration(row.retry_in_s * 1000) : ""],
          ["Last error", row.last_error ? `${row.last_error}${row.last_error_at ? `, ${ago(row.last_error_at)}` : ""}` : ""],
        ]} /></article>`)}
    <//>
    <h2>Models</h2>
    <ul class="plainlist">${named.map((/** @type {any} */ model) => html`<li key=${model.id}><a href=${address(["runs"], { model: model.id })}><code>${model.id}</code></a> <span class="small">${model.owned_by ?? ""}</span></li>`)}</ul>
  </section>`;
}

/** The WASM guests that are configured. */
export function Guests() {
  const loaded = useLoaded("/treadle/v1/guests");
  const tools = useLoaded("/treadle/v1/tools").data?.tools ?? [];
  const rows = loaded.data?.guests ?? [];
  const brought = tools.filter((/** @type {any} */ tool) => tool.source.startsWith("wasm"));
  return html`<section class="view page" aria-label="Guests"><h2>Session guests</h2>
    <${Loading} of=${loaded} label="Reading the guests">
      ${rows.length === 0 && html`<p class="nothing">No guest is configured that owns conversations. See [[guest]] in the configuration.</p>`}
      ${rows.map((/** @type {any} */ row) => html`<article class="card" key=${row.name} aria-label=${row.name}><header><h3>${row.name}</h3></header>
        <${Facts} rows=${Object.entries(row).filter(([name]) => name !== "name").map(([name, value]) => [name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : String(value ?? "")])} /></article>`)}
    <//>
    ${brought.length > 0 && html`<h2>Tools of guests</h2><ul class="plainlist">${brought.map((/** @type {any} */ tool) => html`<li key=${tool.spec.name}>
      <a href=${address(["tools", tool.spec.name])}><code>${tool.spec.name}</code></a> <span class="small">${tool.source}</span></li>`)}</ul>`}
  </section>`;
}
