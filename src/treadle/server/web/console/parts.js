// @ts-check
// What the views of the console are made with: loading, states, code, differences, small tables.

import { asTrouble, getJson, me } from "../shared/api.js";
import { live } from "../shared/stream.js";
import { Copy, count, Dialog, Failed, html, pretty, typed, useEffect, useLayoutEffect, useRef, useState, Waiting } from "../shared/ui.js";

/**
 * Something that is fetched; what was there stays while it is fetched again.
 * @typedef {{data: any, trouble: import("../shared/api.js").Trouble | null, reload: () => void}} Loaded
 */

/**
 * Fetch a document, and again when its path changes or it is asked for; asked while it comes, once more after that.
 * @param {string} path nothing is fetched for an empty one
 * @returns {Loaded}
 */
export function useLoaded(path) {
  const [state, setState] = useState({ path: "", data: /** @type {any} */ (null), trouble: /** @type {any} */ (null) });
  const [turn, setTurn] = useState(0);
  const busy = useRef({ isOn: false, isAgain: false });
  useEffect(() => {
    if (!path) return undefined;
    const control = new AbortController();
    busy.current = { isOn: true, isAgain: false };
    const done = (/** @type {(old: any) => any} */ change) => {
      if (control.signal.aborted) return;
      const { isAgain } = busy.current;
      busy.current = { isOn: false, isAgain: false };
      setState(change);
      if (isAgain) setTurn((n) => n + 1);
    };
    getJson(path, control.signal).then(
      (data) => done(() => ({ path, data, trouble: null })),
      (error) => done((old) => ({ path, data: old.path === path ? old.data : null, trouble: asTrouble(error) })),
    );
    return () => control.abort();
  }, [path, turn]);
  const reload = () => {
    if (busy.current.isOn) busy.current.isAgain = true;
    else setTurn((n) => n + 1);
  };
  return state.path === path ? { ...state, reload } : { data: null, trouble: null, reload };
}

/**
 * Call back soon after something changed on the server, once for a burst of changes.
 * @param {string[]} topics
 * @param {() => void} callback
 * @param {number} [pauseMs]
 */
export function useChanges(topics, callback, pauseMs = 250) {
  const latest = useRef(callback);
  latest.current = callback;
  useEffect(() => {
    let timer = 0;
    const soon = () => {
      timer ||= setTimeout(() => {
        timer = 0;
        latest.current();
      }, pauseMs);
    };
    const leave = [...topics, "reset"].map((topic) => live.on(topic, soon));
    return () => {
      clearTimeout(timer);
      leave.forEach((stop) => stop());
    };
  }, [topics.join()]);
}

/** Tell who looks, and what they may do; until that is known, they may change something and are no admin. */
export function useMe() {
  const [self, setSelf] = useState({ name: "", may: true, isAdmin: false });
  useEffect(() => {
    me().then((person) => setSelf({ name: person.needs_login ? person.name : "", may: person.scope !== "viewer", isAdmin: person.scope === "admin" }), () => {});
  }, []);
  return self;
}

/**
 * What is shown in place of something that is not there yet. When it cannot be had again, what is there stays, with
 * all that somebody may be writing in it.
 * @param {{of: Loaded, label: string, children?: any}} props
 */
export function Loading({ of, label, children = null }) {
  const shown = of.data !== null ? children : !of.trouble && html`<${Waiting} label=${label} />`;
  return [of.trouble && html`<${Failed} of=${of.trouble} onAction=${of.reload} />`, shown];
}

/** @type {Record<string, string>} */
const MOODS = {
  completed: "good", approved: "good", done: "good", finished: "good", confirmed: "good", closed: "good", pass: "good",
  failed: "bad", denied: "bad", rejected: "bad", open_breaker: "bad", fail: "bad", interrupted: "bad", broken: "bad",
  waiting: "warn", pending: "warn", expired: "warn", incomplete: "warn", requires_action: "warn", half_open: "warn", open: "warn",
  running: "busy", queued: "busy", going: "busy",
};

/** @type {Record<string, string>} */
const WORDS = { requires_action: "needs client", going: "asking", half_open: "half open", client: "client's" };

/**
 * A state as a coloured mark and a word.
 * @param {{of: string, mood?: string}} props
 */
export function State({ of, mood = MOODS[of] ?? "plain" }) {
  return html`<span class="state" data-mood=${mood}>${WORDS[of] ?? of}</span>`;
}

/**
 * Code or other text as it is, coloured when there is time.
 * @param {{text: string, language?: string, label: string, wrap?: boolean}} props
 */
export function Code({ text, language = "", label, wrap = false }) {
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const node = body.current;
    if (!node) return;
    node.textContent = text;
    const colour = async () => {
      const { highlight } = await import("../shared/highlight.js");
      if (node.textContent === text) await highlight(node, language);
    };
    if (language && text.length < 20_000) colour().catch(() => {});
  }, [text, language]);
  return html`<figure class="code" data-wrap=${wrap ? "true" : "false"}>
    <figcaption><span>${label}</span><${Copy} text=${() => text} /></figcaption>
    <pre tabindex="0" role="region" aria-label=${label}><code ref=${body}></code></pre>
  </figure>`;
}

/**
 * The arguments of a call: as JSON, and beside it every text of several lines as it is, so that nothing hides behind
 * an escape. A text that replaces another is shown as a difference.
 * @param {{source: string, label: string}} props
 */
export function Arguments({ source, label }) {
  const value = parsed(source);
  const texts = Object.entries(value).filter(([, text]) => typeof text === "string" && text.includes("\n"));
  const isEdit = typeof value.old === "string" && typeof value.new === "string";
  return html`<${Code} text=${pretty(source) || "{}"} language="json" label=${label} wrap=${true} />
    ${isEdit && html`<${Diff} text=${[...signed("-", value.old), ...signed("+", value.new)].join("\n")} label=${`What would change in ${value.path ?? "it"}`} />`}
    ${!isEdit && texts.map(([name, text]) => html`<${Code} key=${name} text=${text} label=${`${name}, line by line`} />`)}`;
}

/** @param {string} mark @param {string} text */
const signed = (mark, text) => text.split("\n").map((line) => `${mark}${line}`);

/** @param {string} source @returns {Record<string, any>} the object that a text writes, or none */
function parsed(source) {
  try {
    const value = JSON.parse(source);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

/**
 * A unified difference, line by line.
 * @param {{text: string, label: string}} props
 */
export function Diff({ text, label }) {
  const lines = text.split("\n").filter((line) => line !== "--- before" && line !== "+++ this round");
  const marks = { "+": "added", "-": "removed", "@": "place" };
  return html`<figure class="code diff">
    <figcaption><span>${label}</span></figcaption>
    <pre tabindex="0" role="region" aria-label=${label}>${lines.map((line, n) => html`<span key=${n}
      data-mark=${marks[/** @type {"+" | "-" | "@"} */ (line[0])] ?? ""}>${line || " "}${"\n"}</span>`)}</pre>
  </figure>`;
}

/**
 * Names and values; what is empty is left out.
 * @param {{rows: [string, any][]}} props
 */
export function Facts({ rows }) {
  const shown = rows.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return html`<dl class="facts">${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/**
 * A plain table.
 * @param {{names: string[], rows: any[][], label: string}} props
 */
export function Table({ names, rows, label }) {
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${names.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map((cells, n) => html`<tr key=${n}>${cells.map((cell, m) => html`<td key=${m}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

/**
 * A list to choose from: pairs of a value and its words, or values that are words.
 * @param {{label: string, value: string, options: any[], onChoose: (value: string) => void, kind?: string}} props
 */
export function Choice({ label, value, options, onChoose, kind = "" }) {
  return html`<label class=${kind}><span>${label}</span><select value=${value} onChange=${typed(onChoose)}>
    ${options.map((each) => [each].flat()).map(([name, words = name]) => html`<option key=${name} value=${name}>${words}</option>`)}</select></label>`;
}

/**
 * What narrows a list.
 * @param {{label: string, children?: any}} props
 */
export function Filters({ label, children }) {
  return html`<form class="filters" role="search" aria-label=${label} onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>${children}</form>`;
}

/** A value, and what it is of which thing. @param {{name: string, of: string, text: string}} props */
export function Pane({ name, of, text }) {
  return html`<div><span>${name}</span><pre tabindex="0" role="region" aria-label=${`${of} ${name}`}>${text}</pre></div>`;
}

/** Write tokens in and out. @param {any} usage */
export function tokens(usage) {
  return usage ? `${usage.estimated ? "≈ " : ""}${count(usage.input_tokens ?? 0)} / ${count(usage.output_tokens ?? 0)}` : "";
}

/** Write an id so that it differs from its neighbours: those of the same hour begin alike. @param {string} id */
export function shortId(id) {
  return id.length > 20 ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-10)}` : id;
}

/** Write a time of day, with the date if that is another. @param {number} seconds since 1970 */
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return isToday ? time : `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

/** Write a value of a document for a person. @param {any} value */
export function shown(value) {
  return value === undefined ? "(nothing)" : JSON.stringify(value, null, 2);
}

/**
 * Ask before something is done that cannot be taken back; when it could not be done, what was written stays.
 * @param {{title: string, verb: string, onDo: () => void, onClose: () => void, children?: any, trouble?: any}} props
 */
export function Confirm({ title, verb, onDo, onClose, children = null, trouble = null }) {
  const act = (/** @type {Event} */ event) => {
    event.preventDefault();
    onDo();
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="stack" onSubmit=${act}>
      ${children}
      ${trouble && html`<${Failed} of=${trouble} />`}
      <div class="row"><button type="submit" class="button">${verb}</button>
        <button type="button" class="box" onClick=${onClose}>Not now</button></div>
    </form>
  <//>`;
}
