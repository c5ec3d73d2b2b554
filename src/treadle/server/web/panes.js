// @ts-check
// What stands around a conversation: the list of chats, the choice of the model, and the page before the first
// question. Gets data and callbacks, gives nodes; decides nothing.

import { examples } from "./examples.js";
import { html, Note, Waiting } from "./views.js";

/** @typedef {import("./conversation.js").Conversation} Conversation */

/**
 * @param {{conversations: Conversation[], current: Conversation, isRunning: (one: Conversation) => boolean,
 *   isKept: boolean, onNew: () => void, onChoose: (one: Conversation) => void,
 *   onRemove: (one: Conversation) => void}} props
 */
export function ChatList({ conversations, current, isRunning, isKept, onNew, onChoose, onRemove }) {
  return html`
    <nav class="list" aria-label="Conversations">
      <button type="button" class="new" onClick=${onNew}>New chat</button>
      <ul>
        ${conversations.map((one) => html`<li key=${one.id} data-current=${one === current ? "true" : "false"}>
          <button type="button" class="title" title=${one.title} aria-current=${one === current ? "true" : "false"}
            onClick=${() => onChoose(one)}>
            <span>${one.title}</span>${isRunning(one) && html`<span class="dot" title="answering"></span>`}
          </button>
          ${one.lastId && html`<button type="button" class="remove" aria-label=${`Remove from the list: ${one.title}`}
            title="Remove from the list" onClick=${() => onRemove(one)}>×</button>`}
        </li>`)}
      </ul>
      <p class="small">${isKept
        ? "This browser keeps the list; the server keeps what was said."
        : "This browser keeps no list: it ends when you reload the page. The server keeps what was said."}</p>
    </nav>
  `;
}

/**
 * A list to choose from, or a field to write in: a server may take models that it does not list.
 * @param {{models: string[], model: string, isTyped: boolean, onModel: (model: string, isTyped: boolean) => void}} props
 */
export function ModelField({ models, model, isTyped, onModel }) {
  if (!isTyped && models.length > 0) {
    const choose = (/** @type {any} */ event) => onModel(event.target.value, event.target.value === "");
    return html`<label class="model" key="list"><span class="unseen">Model</span>
      <select value=${model} onChange=${choose}>
        ${models.map((name) => html`<option key=${name} value=${name} selected=${name === model}>${name}</option>`)}
        <option value="">Another model…</option>
      </select>
    </label>`;
  }
  return html`<div class="model" key="field">
    <label><span class="unseen">Model</span>
      <input type="text" value=${model} placeholder="Model, or empty for the default" autocomplete="off"
        autocapitalize="off" spellcheck=${false} onInput=${(/** @type {any} */ event) => onModel(event.target.value.trim(), true)} />
    </label>
    ${models.length > 0 && html`<button type="button" onClick=${() => onModel(models[0], false)}>List</button>`}
  </div>`;
}

/**
 * What there is to say of a conversation that the server had to be asked for.
 * @param {{conversation: Conversation, onRead: () => void}} props
 */
export function ChatNote({ conversation, onRead }) {
  const { reading, trouble, note } = conversation;
  if (reading !== "reading" && !trouble && !note) return null;
  return html`<div class="aside">
    ${reading === "reading"
      ? html`<${Waiting} label="Reading the chat" />`
      : html`<${Note} message=${trouble?.message ?? note} advice=${trouble?.advice ?? ""} isBad=${trouble !== null}
          onRetry=${trouble && onRead} />`}
  </div>`;
}

/**
 * @param {{tools: any[], model: string, isLoaded: boolean, trouble: import("./stream.js").Trouble | null,
 *   onLoad: () => void, onAsk: (question: string) => void}} props
 */
export function Welcome({ tools, model, isLoaded, trouble, onLoad, onAsk }) {
  return html`
    <section class="empty">
      <h2>What would you like to know?</h2>
      ${trouble
        ? html`<${Note} message=${trouble.message} advice=${trouble.advice} isBad=${true} onRetry=${onLoad} />`
        : html`<p>${tools.length > 0
            ? "Ask in plain words. When a tool is needed, Treadle runs it and shows what it did."
            : "Ask in plain words."}</p>`}
      ${isLoaded && html`<ul class="examples">
        ${examples(tools, model).map((example) => html`<li key=${example}>
          <button type="button" onClick=${() => onAsk(example)}>${example}</button>
        </li>`)}
      </ul>`}
      ${tools.length > 0 && html`<p class="tools">Tools on this server:
        ${tools.map((tool) => html`<code key=${tool.spec.name} title=${tool.spec.description}>${tool.spec.name}</code>`)}</p>`}
    </section>
  `;
}
