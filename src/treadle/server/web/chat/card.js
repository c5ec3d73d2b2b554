// @ts-check
// A tool card as the server made it, and what a person says about a call that waits for one. It runs and decides
// nothing: a decision goes to the server, bound to the digest of what was read here.

import { brief, duration, html, pretty, typed, useClock, useState } from "../shared/ui.js";

/** @typedef {import("./talk.js").Part} Part */

/** @type {Record<string, string>} */
const WORDS = {
  writing: "preparing",
  ready: "waiting",
  asking: "needs approval",
  approved: "approved",
  running: "running",
  done: "done",
  error: "failed",
  denied: "denied",
  expired: "expired",
  stopped: "stopped",
};
/** @type {Record<string, string>} */
const MARKS = { done: "✓", asking: "?", denied: "–", expired: "–", stopped: "–", error: "✕" };

/**
 * @param {{tool: Part, onDecide: (part: Part, choice: any) => Promise<string>, canAct: boolean}} props
 */
export function ToolCard({ tool, onDecide, canAct }) {
  const { state, name, approval } = tool;
  // How long a call took that did not come to its end says nothing.
  const took = tool.duration_ms !== undefined && !/denied|expired|stopped/.test(state) ? ` in ${duration(tool.duration_ms)}` : "";
  return html`
    <details class="tool" data-state=${state}>
      <summary>
        <span class="mark" aria-hidden="true">${MARKS[state] ?? ""}</span>
        <span class="name">${name}</span>
        <span class="brief">${brief(tool.arguments)}</span>
        <span class="state">${WORDS[state] ?? state}${took}</span>
      </summary>
      <dl>
        <dt>${tool.is_edited ? "Arguments, changed by a person" : "Arguments"}</dt>
        <dd><pre tabindex="0">${pretty(tool.arguments) || "none"}</pre></dd>
        ${tool.output && html`<dt>${state === "done" ? "Result" : "Error"}${tool.truncated && ", cut"}</dt>
          <dd><pre tabindex="0">${pretty(tool.output)}</pre></dd>`}
        ${(tool.by || tool.reason) && html`<dt>Decided</dt><dd>${[tool.by && `by ${tool.by}`, tool.reason].filter(Boolean).join(": ")}</dd>`}
        <dt>Run by</dt>
        <dd>${tool.side === "client" ? "the client, which this page cannot do" : `the server${tool.source ? ` (${tool.source})` : ""}`}${tool.sandbox && tool.sandbox !== "none" && `, sandbox ${tool.sandbox}`}</dd>
      </dl>
    </details>
    ${state === "asking" && approval && html`<${Ask} key=${approval.id} tool=${tool} approval=${approval} onDecide=${onDecide} canAct=${canAct} />`}
  `;
}

/** What "remember" means, by the choice; none of it for a call that is decided once. @type {Record<string, any>} */
const REMEMBER = {
  once: undefined,
  call: { kind: "call", scope: "session" },
  tool: { kind: "tool", scope: "session" },
};

/**
 * @param {{tool: Part, approval: import("./talk.js").Approval, canAct: boolean,
 *   onDecide: (part: Part, choice: any) => Promise<string>}} props
 */
function Ask({ tool, approval, onDecide, canAct }) {
  const [edited, setEdited] = useState(/** @type {string | null} */ (null));
  const [reason, setReason] = useState("");
  const [remember, setRemember] = useState("once");
  const [trouble, setTrouble] = useState("");
  const [isSending, setSending] = useState(false);
  const left = approval.expires_at - useClock();
  const decide = async (/** @type {boolean} */ approve) => {
    const choice = { approve, reason, digest: approval.digest, remember: approve ? REMEMBER[remember] : undefined };
    setSending(true);
    setTrouble(await onDecide(tool, approve && edited !== null ? { ...choice, arguments: edited } : choice));
    setSending(false);
  };
  return html`<section class="ask" aria-label=${`Approve ${tool.name}?`}>
    <p><strong>May <code>${tool.name}</code> run?</strong> ${approval.reasons.join("; ")}.</p>
    ${edited === null
      ? html`<pre tabindex="0">${pretty(tool.arguments) || "no arguments"}</pre>`
      : html`<label>Arguments to run with, as JSON
          <textarea class="area" rows="6" value=${edited} onInput=${typed(setEdited)}></textarea>
        </label>`}
    ${canAct
      ? html`<div class="row">
          <button type="button" class="button" disabled=${isSending} onClick=${() => decide(true)}>${edited === null ? "Approve" : "Approve this"}</button>
          <button type="button" class="box" disabled=${isSending} onClick=${() => decide(false)}>Deny</button>
          <button type="button" class="box" onClick=${() => setEdited(edited === null ? pretty(tool.arguments) || "{}" : null)}>${edited === null ? "Edit" : "Do not edit"}</button>
          <label><span class="unseen">Remember</span>
            <select value=${remember} onChange=${typed(setRemember)}>
              <option value="once">this once</option>
              <option value="call">this very call, in this chat</option>
              <option value="tool">every call of ${tool.name}, in this chat</option>
            </select></label>
          <input type="text" class="reason" placeholder="Why (the model reads it)" aria-label="Reason" value=${reason}
            onInput=${typed(setReason)} />
        </div>`
      : html`<p class="small">Somebody with the scope operator can decide this.</p>`}
    ${trouble && html`<p class="bad" role="alert">${trouble}</p>`}
    <p class="small">${left > 0 ? `Expires in ${duration(left * 1000)}.` : "Its time is over."} Bound to <code>${approval.digest.slice(0, 12)}</code>: what you read is what runs.</p>
  </section>`;
}
