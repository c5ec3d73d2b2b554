// @ts-check
// Evaluations: the runs of scenarios on this machine, each a map of scenarios and models, a cell its samples and their
// transcripts, and two runs side by side.

import { count, duration, Failed, html, money, Note, pretty, useState, Waiting } from "../shared/ui.js";
import { address, refine } from "./address.js";
import { More, usePages } from "./lists.js";
import { Choice, clock, Code, Facts, Filters, Loading, Pane, shown, State, Table, useLoaded } from "./parts.js";
import { TextFilter } from "./runs.js";

/**
 * @typedef {import("./address.js").Place} Place
 * @typedef {{passed: number, judged: number, broken: number, samples: any[]}} Cell
 * @typedef {{scenarios: string[], columns: string[], cells: Map<string, Cell>, titles: Map<string, string>}} Heat
 */

const API = "/treadle/v1/evals";
const ROWS = 200;

/** @param {{place: Place}} props */
export function Evals({ place }) {
  if (place.rest[0]) return html`<${SampleView} place=${place} />`;
  return place.id ? html`<${EvalView} place=${place} />` : html`<${EvalList} />`;
}

function EvalList() {
  const pages = usePages(API, "runs");
  const { rows, isLoading, trouble, refresh } = pages;
  return html`<section class="view page" aria-label="Evaluations"><h2>Evaluations</h2>
    ${trouble && html`<${Failed} of=${trouble} onAction=${refresh} />`}
    ${rows.length === 0 && !trouble && (isLoading
      ? html`<${Waiting} label="Reading the evaluations" />`
      : html`<p class="nothing">There is no run of scenarios in the folder that server.evals names. <code>treadle eval</code> makes them.</p>`)}
    ${rows.length > 0 && html`<${Table} label="Runs of scenarios" names=${["Run", "Began", "Models", "Passed", "Failed", "Broken", "Cost"]}
      rows=${rows.map((run, n) => [
        html`<a href=${address(["evals", run.id])}>${run.id}</a>${rows[n + 1] && html` <a class="small" href=${address(["evals", run.id], { vs: rows[n + 1].id })}>against the one before</a>`}`,
        run.started_at ? clock(run.started_at) : "", run.models.join(", ") || run.mode, ...["pass", "fail", "broken"].map((name) => run.outcomes[name] ?? 0), money(run.cost_usd),
      ])} />`}
    <${More} of=${pages} words="Older runs" />
  </section>`;
}

/** @param {any} sample */
const columnOf = (sample) => (sample.strategy === "offline" ? sample.protocol || "offline" : `${sample.model}${sample.strategy === "full" ? "" : ` (${sample.strategy})`}`);
const placeOf = (/** @type {string} */ scenario, /** @type {string} */ column) => `${scenario}\n${column}`;

/** @param {any[]} samples @returns {Heat} */
function heatOf(samples) {
  /** @type {Heat} */
  const heat = { scenarios: [], columns: [], cells: new Map(), titles: new Map() };
  for (const sample of samples) {
    const column = columnOf(sample);
    if (!heat.titles.has(sample.scenario)) heat.scenarios.push(sample.scenario);
    heat.titles.set(sample.scenario, sample.title);
    if (!heat.columns.includes(column)) heat.columns.push(column);
    const name = placeOf(sample.scenario, column);
    const cell = heat.cells.get(name) ?? { passed: 0, judged: 0, broken: 0, samples: [] };
    cell.passed += sample.outcome === "pass" ? 1 : 0;
    cell.judged += sample.outcome === "broken" ? 0 : 1;
    cell.broken += sample.outcome === "broken" ? 1 : 0;
    cell.samples.push(sample);
    heat.cells.set(name, cell);
  }
  return heat;
}

/** @param {Cell | undefined} cell */
const rate = (cell) => (cell && cell.judged > 0 ? cell.passed / cell.judged : null);

/** @param {Cell} cell */
function warmth(cell) {
  if (cell.judged === 0) return "broken";
  return cell.passed === cell.judged ? "pass" : cell.passed === 0 ? "fail" : "mixed";
}

/** @type {[string, string][]} */
const SHOWN = [["", "all"], ["bad", "failures"], ["changed", "different"]];

/** @param {{place: Place}} props */
function EvalView({ place }) {
  const vs = place.query.get("vs") ?? "";
  const loaded = useLoaded(`${API}/${encodeURIComponent(place.id)}`);
  const other = useLoaded(vs ? `${API}/${encodeURIComponent(vs)}` : "");
  const runs = (useLoaded(API).data?.runs ?? []).map((/** @type {any} */ run) => run.id);
  const others = [...new Set([...runs, ...(vs ? [vs] : [])])].filter((id) => id !== place.id);
  const choose = (/** @type {string} */ name) => (/** @type {string} */ value) => refine({ [name]: value });
  const pick = place.query.get("cell") ?? "";
  return html`<section class="view page" aria-label="Evaluation">
    <${Loading} of=${loaded} label="Reading the evaluation">${loaded.data && html`
      <${Summary} run=${loaded.data.run} />
      <${Filters} label="Filter the scenarios">
        <${TextFilter} name="text" label="Scenario" value=${place.query.get("text") ?? ""} />
        <${Choice} label="Show" value=${place.query.get("show") ?? ""} onChoose=${choose("show")} options=${vs ? SHOWN : SHOWN.slice(0, 2)} />
        <${Choice} label="Against" value=${vs} onChoose=${choose("vs")} options=${[["", "no other run"], ...others]} />
      <//>
      ${other.trouble && html`<${Failed} of=${other.trouble} />`}
      ${other.data && html`<${Comparison} before=${other.data} after=${loaded.data} />`}
      <${HeatMap} heat=${heatOf(loaded.data.samples)} before=${other.data ? heatOf(other.data.samples) : null} query=${place.query} />
      ${pick && html`<${Samples} run=${place.id} cell=${heatOf(loaded.data.samples).cells.get(pick)} name=${pick} />`}`}
    <//></section>`;
}

/** @param {{run: any}} props */
function Summary({ run }) {
  const judged = (run.outcomes.pass ?? 0) + (run.outcomes.fail ?? 0);
  return html`<h2>${run.id}</h2><${Facts} rows=${[
    ["Name", run.name],
    ["Began", run.started_at ? clock(run.started_at) : ""],
    ["Models", run.models.join(", ") || run.mode],
    ["Passed", judged ? `${run.outcomes.pass ?? 0} of ${judged}` : ""],
    ["Broken", run.outcomes.broken ? String(run.outcomes.broken) : ""],
    ["Trials", run.trials > 1 ? String(run.trials) : ""],
    ["Cost", money(run.cost_usd)],
    ["Graders", run.grader_version ? `version ${run.grader_version}` : ""],
  ]} />`;
}

/** What was gained and lost between two runs, column by column. @param {{before: any, after: any}} props */
function Comparison({ before, after }) {
  const differs = Object.keys({ ...before.run.fingerprints, ...after.run.fingerprints }).filter((name) => before.run.fingerprints[name] !== after.run.fingerprints[name]);
  const shared = Object.keys(after.run.scenario_fingerprints).filter((name) => name in before.run.scenario_fingerprints);
  const changed = shared.filter((name) => before.run.scenario_fingerprints[name] !== after.run.scenario_fingerprints[name]);
  const [was, now] = [heatOf(before.samples), heatOf(after.samples)];
  return html`
    ${(differs.length > 0 || changed.length > 0) && html`<${Note} message=${`The runs differ in ${[...differs, ...changed.slice(0, 5)].join(", ")}.`}
      advice="Their numbers mean different things; treadle eval compare --regrade grades both again." />`}
    <ul class="plainlist">${now.columns.filter((column) => was.columns.includes(column)).map((column) => {
      const pairs = now.scenarios.map((name) => [name, rate(was.cells.get(placeOf(name, column))), rate(now.cells.get(placeOf(name, column)))]);
      const moved = (/** @type {number} */ sign) => pairs.filter(([, old, fresh]) => old !== null && fresh !== null && Math.sign(Number(fresh) - Number(old)) === sign).map(([name]) => name);
      const [lost, gained] = [moved(-1), moved(1)];
      return html`<li key=${column}><b>${column}</b>: ${lost.length > 0 ? html`<${State} of=${`lost ${lost.length}`} mood="bad" /> ${lost.join(", ")} ` : "nothing lost "}
        ${gained.length > 0 && html`<${State} of=${`gained ${gained.length}`} mood="good" /> ${gained.join(", ")}`}</li>`;
    })}</ul>`;
}

/** @param {{heat: Heat, before: Heat | null, query: URLSearchParams}} props */
function HeatMap({ heat, before, query }) {
  const text = (query.get("text") ?? "").toLowerCase();
  const wish = query.get("show") ?? "";
  const cellsOf = (/** @type {string} */ scenario) => heat.columns.map((column) => placeOf(scenario, column));
  const isBad = (/** @type {string} */ name) => { const cell = heat.cells.get(name); return cell !== undefined && warmth(cell) !== "pass"; };
  const isChanged = (/** @type {string} */ name) => rate(heat.cells.get(name)) !== rate(before?.cells.get(name));
  const rows = heat.scenarios.filter((scenario) => `${scenario} ${heat.titles.get(scenario)}`.toLowerCase().includes(text)
    && (wish === "bad" ? cellsOf(scenario).some(isBad) : wish === "changed" && before ? cellsOf(scenario).some(isChanged) : true));
  const [shownMax, setMax] = useState(ROWS);
  if (rows.length === 0) return html`<p class="nothing">No scenario fits.</p>`;
  return html`<div class="table" tabindex="0" role="region" aria-label="Scenarios and models"><table class="heat"><thead><tr><th scope="col">Scenario</th>${heat.columns.map((column) => html`<th scope="col" key=${column}>${column}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, shownMax).map((scenario) => html`<tr key=${scenario}><th scope="row" title=${heat.titles.get(scenario)}>${scenario}</th>
      ${heat.columns.map((column) => html`<${HeatCell} key=${column} heat=${heat} before=${before} name=${placeOf(scenario, column)} query=${query} />`)}</tr>`)}</tbody></table></div>
    ${rows.length > shownMax && html`<button type="button" class="box" onClick=${() => setMax(shownMax + ROWS)}>${rows.length - shownMax} more scenarios</button>`}`;
}

/** @param {{heat: Heat, before: Heat | null, name: string, query: URLSearchParams}} props */
function HeatCell({ heat, before, name, query }) {
  const cell = heat.cells.get(name);
  if (!cell) return html`<td></td>`;
  const old = rate(before?.cells.get(name));
  const fresh = rate(cell);
  const shift = old !== null && fresh !== null && old !== fresh ? (fresh > old ? " ▲" : " ▼") : "";
  const words = cell.judged === 0 ? "broken" : `${cell.passed}/${cell.judged}`;
  const link = `${location.pathname}?${new URLSearchParams({ ...Object.fromEntries(query), cell: name })}`;
  return html`<td><a href=${link} data-heat=${warmth(cell)} aria-label=${`${name.replace("\n", ", ")}: ${words} passed${shift && (shift === " ▲" ? ", better" : ", worse")}`}>${words}${shift}</a></td>`;
}

/** @param {{run: string, cell: Cell | undefined, name: string}} props */
function Samples({ run, cell, name }) {
  if (!cell) return null;
  return html`<h2>${name.replace("\n", " · ")}</h2><ul class="plainlist">${cell.samples.map((sample) => html`<li key=${sample.key}>
    <${State} of=${sample.outcome} /> <a href=${address(["evals", run, sample.key])}>${sample.key}</a>
    <span class="small"> ${sample.rounds} rounds, ${sample.calls} calls${sample.duration_s ? `, ${duration(sample.duration_s * 1000)}` : ""} ${money(sample.cost_usd)}</span>
    ${sample.reason && html`<p class="text">${sample.reason}</p>`}</li>`)}</ul>`;
}

/** One sample: verdicts, transcript, and what became of its world. @param {{place: Place}} props */
function SampleView({ place }) {
  const loaded = useLoaded(`${API}/${encodeURIComponent(place.id)}/samples/${place.rest.map(encodeURIComponent).join("/")}`);
  return html`<section class="view page" aria-label="Sample"><${Loading} of=${loaded} label="Reading the transcript">${loaded.data && html`<${Transcript} data=${loaded.data} run=${place.id} />`}<//></section>`;
}

/** @param {{data: any, run: string}} props */
function Transcript({ data, run }) {
  const { sample } = data;
  const isMoved = JSON.stringify(data.before) !== JSON.stringify(data.after);
  return html`<h2>${sample.key} <${State} of=${sample.outcome} /></h2>
    <p class="small">${sample.title && `${sample.title} · `}<a href=${address(["evals", run], { cell: placeOf(sample.scenario, columnOf(sample)) })}>back to the map</a></p>
    <ul class="plainlist">${sample.verdicts.map((/** @type {any} */ verdict, /** @type {number} */ n) => html`<li key=${n}><${State} of=${verdict.passed ? "pass" : "fail"} /> <b>${verdict.grader}</b> ${verdict.reason}</li>`)}</ul>
    ${data.mismatches.map((/** @type {string} */ text) => html`<${Note} key=${text} message=${text} isBad=${true} />`)}
    ${Object.keys(sample.quirks).length > 0 && html`<p>Quirks: ${Object.entries(sample.quirks).map(([name, times]) => `${name} × ${times}`).join(", ")}</p>`}
    ${data.runs.length === 0 && html`<p class="nothing">No transcript was kept of it.</p>`}
    ${data.runs.map((/** @type {any} */ trace, /** @type {number} */ n) => html`<${Played} key=${n} trace=${trace} />`)}
    ${isMoved && html`<h2>The world</h2><div class="sides"><${Pane} name="before" of="The world" text=${shown(data.before)} /><${Pane} name="after" of="The world" text=${shown(data.after)} /></div>`}`;
}

/** @param {{trace: any}} props */
function Played({ trace }) {
  return html`<article class="card"><header><h3>${trace.question || "(nothing said)"}</h3></header>
    ${trace.rounds.map((/** @type {any} */ round, /** @type {number} */ n) => html`<section key=${n} aria-label=${`Round ${round.number}`}>
      <p class="small">round ${round.number} · ${round.stop ?? round.state} · asked with ${count(round.items)} items</p>
      ${round.text && html`<p class="text">${round.text}</p>`}
      ${round.calls.map((/** @type {any} */ call) => html`<details class="fold" key=${call.call_id}><summary><code>${call.name}</code> <${State} of=${call.state} /></summary>
        <${Code} text=${pretty(call.arguments)} language="json" label="Arguments" /><${Code} text=${pretty(call.output ?? "")} label="Result" wrap=${true} /></details>`)}
    </section>`)}</article>`;
}
