// @ts-check
// One question and what came of it: text, reasoning, tool cards, notes, and what can be done with it.

import { MarkdownView } from "../shared/markdown.js";
import { Component, Copy, count, duration, html, money, Note, typed, useLayoutEffect, useRef, useState, Waiting } from "../shared/ui.js";
import { ToolCard } from "./card.js";
import { answerText, isOpen, isSent } from "./talk.js";

/**
 * @typedef {import("./talk.js").Turn} Turn
 * @typedef {import("./talk.js").Part} Part
 * @typedef {{onAgain: (turn: Turn, text?: string) => void, onBranch: (run: string) => void,
 *   onDecide: (part: Part, choice: any) => Promise<string>, canAct: boolean, isBusy: boolean}} Acts
 */

/** Drawn again only when something of it changed: a long chat costs no more while an answer comes. */
export class TurnView extends Component {
  /** @param {any} next */
  shouldComponentUpdate(next, /** @type {any} */ state) {
    const { turn, acts } = this.props;
    const isSame = turn === next.turn && this.seen === turn.version && acts.isBusy === next.acts.isBusy;
    return !isSame || acts.canAct !== next.acts.canAct || state !== this.state;
  }

  render() {
    /** @type {{turn: Turn, acts: Acts}} */
    const { turn, acts } = this.props;
    this.seen = turn.version;
    const isWaiting = isOpen(turn) && !turn.parts.some((part) => part.kind === "tool" || part.text);
    return html`
      <article class="turn" data-state=${turn.status} tabindex="-1" aria-label=${`Question: ${turn.question.text.slice(0, 80)}`}>
        <h2 class="unseen">You</h2>
        <${Asked} turn=${turn} acts=${acts} />
        <h2 class="unseen">Treadle</h2>
        <div class="answer">
          ${turn.parts.map((part) => html`<${PartView} key=${part.id} part=${part} acts=${acts} />`)}
          ${isWaiting && html`<${Waiting} label="Thinking" />`}
          ${turn.status === "completed" && turn.parts.length === 0 && html`<p class="small">The answer is empty.</p>`}
          ${turn.note && html`<${Note} message=${turn.note} advice=${turn.advice} isBad=${turn.status === "failed" || turn.status === "unsent"}
            onAction=${acts.canAct && !acts.isBusy ? () => acts.onAgain(turn) : null} />`}
          ${!isOpen(turn) && html`<${Foot} turn=${turn} acts=${acts} />`}
        </div>
      </article>
    `;
  }
}

/** One function for ever: another with every drawing would take the focus each time. @param {HTMLElement | null} node */
const focused = (node) => node?.focus();

/** @param {{turn: Turn, acts: Acts}} props */
function Asked({ turn, acts }) {
  const [draft, setDraft] = useState(/** @type {string | null} */ (null));
  const { text, files } = turn.question;
  if (draft !== null) {
    const save = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (acts.isBusy) return;
      setDraft(null);
      if (draft.trim()) acts.onAgain(turn, draft.trim());
    };
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") setDraft(null);
      else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) save(event);
      else return;
      event.stopPropagation();
    };
    return html`<form class="question editing" onSubmit=${save}>
      <label class="unseen" for="edit">Edit your question</label>
      <textarea id="edit" class="area" rows=${Math.min(10, draft.split("\n").length + 1)} value=${draft}
        ref=${focused} onKeyDown=${onKey}
        onInput=${typed(setDraft)}></textarea>
      <div class="row"><button class="button" disabled=${acts.isBusy}>Ask again</button>
        <button type="button" class="box" onClick=${() => setDraft(null)}>Keep it</button></div>
    </form>`;
  }
  const place = turn.siblings.indexOf(turn.run_id);
  const canEdit = acts.canAct && !acts.isBusy && isSent(turn);
  const to = (/** @type {number} */ step) => () => acts.onBranch(turn.siblings[place + step]);
  return html`<div class="asked">
    <div class="question">${files.length > 0 && html`<ul class="files" aria-label="Attached">
      ${files.map((file, n) => html`<li key=${n}>${file.name}</li>`)}</ul>`}${text}</div>
    <div class="row tools">
      ${turn.siblings.length > 1 && html`<span class="branches" role="group" aria-label="Branches">
        <button type="button" class="plain" aria-label="Branch before" disabled=${acts.isBusy || place <= 0} onClick=${to(-1)}>‹</button>
        <span>${place + 1} / ${turn.siblings.length}</span>
        <button type="button" class="plain" aria-label="Branch after" disabled=${acts.isBusy || place >= turn.siblings.length - 1} onClick=${to(1)}>›</button>
      </span>`}
      ${canEdit && html`<button type="button" class="quiet edit" onClick=${() => setDraft(text)}>Edit</button>`}
    </div>
  </div>`;
}

/** @param {{part: Part, acts: Acts}} props */
function PartView({ part, acts }) {
  if (part.kind === "tool") return html`<${ToolCard} tool=${part} onDecide=${acts.onDecide} canAct=${acts.canAct} />`;
  if (part.kind === "status") return html`<p class="line" data-done=${String(part.done)}>${part.text}</p>`;
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

/** @param {{part: Part}} props */
function Reasoning({ part }) {
  return html`<details class="reasoning">
    <summary>${part.done ? "Thought about it" : "Thinking…"}</summary>
    <p>${part.text}</p>
  </details>`;
}

/** @param {{turn: Turn, acts: Acts}} props */
function Foot({ turn, acts }) {
  const { usage, cost_usd: usd, created_at: from, ended_at: until, model } = turn;
  const used = usage ? `${count(usage.input_tokens ?? 0)} in, ${count(usage.output_tokens ?? 0)} out` : "";
  const took = until ? duration((until - from) * 1000) : "";
  return html`<div class="row foot">
    ${answerText(turn) && html`<${Copy} text=${() => answerText(turn)} label="Copy answer" />`}
    ${acts.canAct && !acts.isBusy && isSent(turn) && html`<button type="button" class="quiet again" onClick=${() => acts.onAgain(turn)}>Ask again</button>`}
    <span class="small used" title="tokens, cost, time, model">${[used, money(usd), took, model].filter(Boolean).join(" · ")}</span>
  </div>`;
}
