// @ts-check
// What stands around a chat: the list of chats, the choice of the model, the menu, and the page before the first
// question. Gets data and callbacks, gives nodes; decides nothing.

import { ago, Dialog, Failed, html, typed, useState } from "../shared/ui.js";
import { examples } from "./examples.js";

/** @typedef {import("./talk.js").Session} Session */

/**
 * @param {{sessions: Session[], currentId: string, running: Set<string>, search: string, hasMore: boolean,
 *   onNew: () => void, onSearch: (text: string) => void, onMore: () => void}} props
 */
export function ChatList({ sessions, currentId, running, search, hasMore, onNew, onSearch, onMore }) {
  return html`
    <nav class="list" aria-label="Chats">
      <button type="button" class="new" onClick=${onNew}>New chat</button>
      <input type="search" id="search" placeholder="Search all chats" aria-label="Search all chats" value=${search}
        onInput=${typed(onSearch)} />
      <ul>
        ${sessions.map((one) => html`<li key=${one.id} data-current=${one.id === currentId ? "true" : "false"}>
          <a class="title" href=${`#${one.id}`} title=${one.name} aria-current=${one.id === currentId ? "page" : undefined}>
            <span>${one.name}</span>${running.has(one.id) && html`<span class="dot" role="img" aria-label="answering"></span>`}
            <time>${ago(one.updated_at)}</time>
          </a>
        </li>`)}
      </ul>
      ${sessions.length === 0 && html`<p class="small">${search ? "No chat has that." : "No chats yet."}</p>`}
      ${hasMore && html`<button type="button" class="box" onClick=${onMore}>Older chats</button>`}
      <p class="small">The server keeps all chats. <a href="/console">Console</a></p>
    </nav>
  `;
}

/**
 * A list to choose from, or a field to write in: a server may take models that it does not list.
 * @param {{models: string[], model: string, isTyped: boolean, onModel: (model: string, isTyped: boolean) => void}} props
 */
export function ModelField({ models, model, isTyped, onModel }) {
  if (!isTyped && models.length > 0) {
    return html`<label class="model" key="list"><span class="unseen">Model</span>
      <select id="model" value=${model} onChange=${typed((name) => onModel(name, name === ""))}>
        ${models.map((name) => html`<option key=${name} value=${name} selected=${name === model}>${name}</option>`)}
        <option value="">Another model…</option>
      </select>
    </label>`;
  }
  return html`<div class="model" key="field">
    <label><span class="unseen">Model</span>
      <input type="text" id="model" value=${model} placeholder="Model, or empty for the default" autocomplete="off"
        autocapitalize="off" spellcheck=${false} onInput=${typed((name) => onModel(name, true))} />
    </label>
    ${models.length > 0 && html`<button type="button" class="box" onClick=${() => onModel(models[0], false)}>List</button>`}
  </div>`;
}

/**
 * What can be done with the open chat, and how the page looks.
 * @param {{session: Session | null, canAct: boolean, theme: string, mode: string, needsLogin: boolean,
 *   onRename: (name: string) => void, onDelete: () => void, onTheme: () => void, onMode: () => void,
 *   onKeys: () => void, onLogout: () => void, onClose: () => void}} props
 */
export function Menu({ session, canAct, theme, mode, needsLogin, onRename, onDelete, onTheme, onMode, onKeys, onLogout, onClose }) {
  const [isSure, setSure] = useState(false);
  const rename = (/** @type {any} */ event) => {
    event.preventDefault();
    onRename(event.target.elements.name.value.trim());
  };
  const exported = (/** @type {string} */ form) => `/treadle/v1/sessions/${session?.id}/export?format=${form}`;
  return html`<${Dialog} title="This chat and this page" onClose=${onClose}>
    ${session && html`
      ${canAct && html`<form class="row" onSubmit=${rename}>
        <label>Name <input type="text" name="name" defaultValue=${session.name} maxlength="200" required /></label>
        <button class="box">Rename</button>
      </form>`}
      <p class="row">Export <a class="box" href=${exported("md")} download>Markdown</a>
        <a class="box" href=${exported("jsonl")} download>JSON Lines</a></p>
      ${canAct && html`<p class="row">${isSure
        ? html`Delete it for everyone? <button type="button" class="button" onClick=${onDelete}>Delete</button>
            <button type="button" class="box" onClick=${() => setSure(false)}>Keep</button>`
        : html`<button type="button" class="box" onClick=${() => setSure(true)}>Delete this chat…</button>`}</p>`}
    `}
    <p class="row"><button type="button" class="box" onClick=${onTheme}>Colours: ${theme}</button>
      <button type="button" class="box" onClick=${onMode}>Tools: ${mode === "text" ? "one line each" : "cards"}</button>
      <button type="button" class="box" onClick=${onKeys}>Keyboard</button>
      ${needsLogin && html`<button type="button" class="box" onClick=${onLogout}>Log out</button>`}</p>
  <//>`;
}

/**
 * @param {{tools: any[], model: string, isLoaded: boolean, canAct: boolean,
 *   trouble: import("../shared/api.js").Trouble | null, onLoad: () => void, onAsk: (question: string) => void}} props
 */
export function Welcome({ tools, model, isLoaded, canAct, trouble, onLoad, onAsk }) {
  return html`
    <section class="empty">
      <h2>What would you like to know?</h2>
      ${trouble
        ? html`<${Failed} of=${trouble} onAction=${onLoad} />`
        : html`<p>${tools.length > 0
            ? "Ask in plain words. When a tool is needed, Treadle runs it and shows what it did."
            : "Ask in plain words."}</p>`}
      ${isLoaded && canAct && html`<ul class="examples">
        ${examples(tools, model).map((example) => html`<li key=${example}>
          <button type="button" onClick=${() => onAsk(example)}>${example}</button>
        </li>`)}
      </ul>`}
      ${tools.length > 0 && html`<p class="tools">Tools on this server:
        ${tools.map((tool) => html`<code key=${tool.spec.name} title=${tool.spec.description}>${tool.spec.name}</code>`)}</p>`}
    </section>
  `;
}
