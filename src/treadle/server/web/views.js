// @ts-check
// What is shown of a conversation: turns, tool cards, notes. Gets data and gives nodes; keeps no state of the chat.

import htm from "./vendor/htm.js";
import { useLayoutEffect, useRef, useState } from "./vendor/hooks.js";
import { h } from "./vendor/preact.js";
import { answerText, hasContent } from "./conversation.js";
import { MarkdownView } from "./markdown.js";
import { sentences } from "./stream.js";

export const html = htm.bind(h);

/** @param {{turn: import("./conversation.js").Turn, onRetry: (() => void) | null}} props */
export function TurnView({ turn, onRetry }) {
  const waiting = turn.state === "open" && !hasContent(turn.parts);
  return html`
    <article class="turn" data-state=${turn.state}>
      <h2 class="unseen">You</h2>
      <div class="question">${turn.question}</div>
      <h2 class="unseen">Treadle</h2>
      ${turn.earlier.map((parts, position) => html`<${EarlierTry} key=${position} parts=${parts} />`)}
      <div class="answer">
        ${turn.parts.map((part) => html`<${PartView} key=${part.id} part=${part} />`)}
        ${waiting && html`<${Waiting} label="Thinking" />`}
        ${turn.note && html`<${TurnNote} turn=${turn} onRetry=${onRetry} />`}
        ${turn.state !== "open" && answerText(turn) && html`<${CopyAnswer} turn=${turn} />`}
      </div>
    </article>
  `;
}

/** @param {{label: string}} props */
export function Waiting({ label }) {
  return html`<p class="thinking" role="status"><span></span><span></span><span></span><em class="unseen">${label}</em></p>`;
}

/** @param {{parts: import("./conversation.js").Part[]}} props */
function EarlierTry({ parts }) {
  return html`
    <details class="earlier" open>
      <summary>Earlier try, not complete</summary>
      <div class="answer">${parts.map((part) => html`<${PartView} key=${part.id} part=${part} />`)}</div>
    </details>
  `;
}

/** @param {{part: import("./conversation.js").Part}} props */
function PartView({ part }) {
  if (part.kind === "tool") return html`<${ToolCard} tool=${part} />`;
  if (part.kind === "reasoning") return part.text ? html`<${Reasoning} part=${part} />` : null;
  return html`<${Markdown} text=${part.text} open=${!part.done} />`;
}

/** @param {{text: string, open: boolean}} props */
function Markdown({ text, open }) {
  const root = useRef(/** @type {HTMLElement | null} */ (null));
  const view = useRef(/** @type {MarkdownView | null} */ (null));
  useLayoutEffect(() => {
    if (root.current) view.current ??= new MarkdownView(root.current);
    view.current?.update(text);
    if (!open) view.current?.finish();
  }, [text, open]);
  return html`<div class=${open ? "prose open" : "prose"} ref=${root}></div>`;
}

/** @param {{part: import("./conversation.js").ReasoningPart}} props */
function Reasoning({ part }) {
  return html`
    <details class="reasoning">
      <summary>${part.done ? "Thought about it" : "Thinking…"}</summary>
      <p>${part.text}</p>
    </details>
  `;
}

const STATES = { writing: "preparing", running: "running", done: "done", failed: "failed" };

/** @param {{tool: import("./conversation.js").ToolPart}} props */
function ToolCard({ tool }) {
  const busy = tool.state === "writing" || tool.state === "running";
  return html`
    <details class="tool" data-state=${tool.state}>
      <summary>
        <span class="mark" aria-hidden="true">${busy ? "" : tool.state === "done" ? "✓" : "✕"}</span>
        <span class="name">${tool.name}</span>
        <span class="brief">${brief(tool.arguments)}</span>
        <span class="state">${STATES[tool.state]}${!busy && tool.tookMs !== null && ` in ${duration(tool.tookMs)}`}</span>
      </summary>
      <dl>
        <dt>Arguments</dt>
        <dd><pre tabindex="0">${pretty(tool.arguments) || "none"}</pre></dd>
        ${!busy && html`<dt>${tool.state === "done" ? "Result" : "Error"}</dt>
          <dd><pre tabindex="0">${pretty(tool.output) || "nothing"}</pre></dd>`}
        <dt>Run by</dt>
        <dd>${tool.source === "client" ? "the client, which this page cannot do" : `the server (${tool.source})`}</dd>
      </dl>
    </details>
  `;
}

const RETRIED = new Set(["failed", "cut", "stopped"]);

/** @param {{turn: import("./conversation.js").Turn, onRetry: (() => void) | null}} props */
function TurnNote({ turn, onRetry }) {
  const isBad = turn.state === "failed" || turn.state === "cut";
  return html`<${Note} message=${turn.note} advice=${turn.advice} isBad=${isBad}
    onRetry=${RETRIED.has(turn.state) ? onRetry : null} />`;
}

/**
 * Something to know, and perhaps to do: what happened on one line, what to do about it on the next.
 * @param {{message: string, advice: string, isBad: boolean, onRetry: (() => void) | null}} props
 */
export function Note({ message, advice, isBad, onRetry }) {
  const [first, ...rest] = sentences(message);
  const lines = [...rest, advice].filter(Boolean);
  return html`
    <div class="note" data-bad=${isBad ? "true" : "false"} role=${isBad ? "alert" : "status"}>
      <div>
        <p>${isBad ? html`<strong>${first}</strong>` : first}</p>
        ${lines.map((line) => html`<p key=${line}>${line}</p>`)}
      </div>
      ${onRetry && html`<button type="button" onClick=${onRetry}>Try again</button>`}
    </div>
  `;
}

/** @param {{turn: import("./conversation.js").Turn}} props */
function CopyAnswer({ turn }) {
  const [label, setLabel] = useState("Copy answer");
  const copy = async () => {
    const copied = await navigator.clipboard.writeText(answerText(turn)).then(() => true, () => false);
    setLabel(copied ? "Copied" : "Could not copy");
    setTimeout(() => setLabel("Copy answer"), 2000);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${label}</button>`;
}

/** @param {string} source */
function read(source) {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}

/** @param {string} source */
function pretty(source) {
  const value = read(source);
  return value !== null && typeof value === "object" ? JSON.stringify(value, null, 2) : source;
}

/** @param {string} source */
function brief(source) {
  const value = read(source);
  if (value === null || typeof value !== "object") return source;
  const pairs = Object.entries(value).map(([name, part]) => `${name}: ${typeof part === "string" ? part : JSON.stringify(part)}`);
  return pairs.join(", ");
}

/** @param {number} ms */
function duration(ms) {
  return ms < 1000 ? `${Math.max(1, Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;
}
