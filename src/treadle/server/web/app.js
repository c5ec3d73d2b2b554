// @ts-check
// The chat page: which conversations there are, what is being asked, and the keys. The server decides and runs
// everything; this page asks, shows, and can stop.

import { Component, render } from "./vendor/preact.js";
import { addTurn, applyEvent, fail, isEnding, lastResponseId, newConversation, stop } from "./conversation.js";
import { ask, getJson, Trouble } from "./stream.js";
import { html, TurnView } from "./views.js";

const REDRAW_MS = 50;
const NEAR_END_PX = 80;
const EXAMPLES = ["What is the weather in Paris?", "Add 12.5 and 30", "Convert 26.2 miles to kilometres", "What can you do here?"];

class App extends Component {
  constructor() {
    super();
    const first = newConversation();
    this.state = {
      conversations: [first],
      current: first,
      models: /** @type {string[]} */ ([]),
      model: "",
      tools: /** @type {any[]} */ ([]),
      trouble: /** @type {Trouble | null} */ (null),
      listOpen: false,
      away: false,
      said: "",
    };
    /** @type {Map<any, AbortController>} */
    this.running = new Map();
    this.redrawTimer = 0;
    this.announced = { part: "", length: 0 };
  }

  componentDidMount() {
    this.load();
    this.input?.focus();
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.isComposing) this.onEscape();
    });
  }

  componentDidUpdate() {
    if (!this.state.away && this.log) this.log.scrollTop = this.log.scrollHeight;
  }

  async load() {
    try {
      const [models, tools] = await Promise.all([getJson("/v1/models"), getJson("/treadle/v1/tools")]);
      const names = models.data.map((/** @type {any} */ model) => model.id);
      this.setState({ models: names, model: names[0] ?? "", tools: tools.tools, trouble: null });
    } catch (error) {
      this.setState({ trouble: error instanceof Trouble ? error : new Trouble("The page could not be set up.", "Reload it.") });
    }
  }

  /** @param {string} question */
  async send(question) {
    const conversation = this.state.current;
    const text = question.trim();
    if (!text || this.running.has(conversation)) return;
    const previous = lastResponseId(conversation);
    const turn = addTurn(conversation, text);
    const control = new AbortController();
    this.running.set(conversation, control);
    this.announced = { part: "", length: 0 };
    this.setState({ away: false, said: "" });
    const body = { model: this.state.model, input: text, ...(previous && { previous_response_id: previous }) };
    try {
      await this.follow(turn, body, control.signal);
    } catch (error) {
      if (control.signal.aborted) stop(turn);
      else if (error instanceof Trouble) fail(turn, error.message, error.advice);
      else fail(turn, "The connection broke off.", "Try again; what came so far stays here.");
    }
    this.running.delete(conversation);
    this.redraw();
    this.announce(turn, true);
  }

  async follow(turn, body, signal) {
    for await (const event of ask(body, signal)) {
      applyEvent(turn, event);
      this.redrawSoon();
      if (isEnding(event)) return;
    }
    if (turn.state === "open") fail(turn, "The answer broke off.", "Try again; what came so far stays here.");
  }

  stopCurrent() {
    this.running.get(this.state.current)?.abort();
  }

  onEscape() {
    if (this.state.listOpen) this.setState({ listOpen: false });
    else this.stopCurrent();
  }

  retry(turn) {
    if (this.running.has(this.state.current)) return;
    this.state.current.turns = this.state.current.turns.filter((/** @type {any} */ other) => other !== turn);
    this.send(turn.question);
  }

  startNew() {
    const empty = this.state.conversations.find((/** @type {any} */ one) => one.turns.length === 0);
    const current = empty ?? newConversation();
    const conversations = empty ? this.state.conversations : [current, ...this.state.conversations];
    this.setState({ conversations, current, listOpen: false, away: false }, () => this.input?.focus());
  }

  choose(conversation) {
    this.setState({ current: conversation, listOpen: false, away: false }, () => this.input?.focus());
  }

  /** Draw at most once in REDRAW_MS, however many events come. */
  redrawSoon() {
    this.redrawTimer ||= setTimeout(() => this.redraw(), REDRAW_MS);
  }

  redraw() {
    clearTimeout(this.redrawTimer);
    this.redrawTimer = 0;
    const turn = this.state.current.turns.at(-1);
    if (turn) this.announce(turn, false);
    this.forceUpdate();
  }

  /** Tell screen readers whole sentences, never single tokens. */
  announce(turn, isOver) {
    const part = turn.parts.findLast((/** @type {any} */ one) => one.kind === "text");
    if (!part) return;
    if (this.announced.part !== part.id) this.announced = { part: part.id, length: 0 };
    const fresh = part.text.slice(this.announced.length);
    const ends = [...fresh.matchAll(/[.!?…:](?=\s)|\n/g)];
    const length = isOver ? fresh.length : ends.length ? ends[ends.length - 1].index + 1 : 0;
    if (!length) return;
    this.announced.length += length;
    this.setState({ said: fresh.slice(0, length).replace(/[`*_#>|]/g, "") });
  }

  render() {
    const { current, listOpen, away, said } = this.state;
    const busy = this.running.has(current);
    return html`
      <div class="frame" data-list=${listOpen ? "open" : "closed"}>
        <a class="skip" href="#question">Skip to the question</a>
        ${this.renderList()}
        <div class="main">
          ${this.renderHeader()}
          <main class="log" ref=${(node) => (this.log = node)} onScroll=${() => this.onScroll()} tabindex="-1">
            ${current.turns.length === 0 ? this.renderEmpty() : html`<div class="turns">
              ${current.turns.map((turn, position) => html`<${TurnView} key=${turn.id} turn=${turn}
                onRetry=${position === current.turns.length - 1 && !busy ? () => this.retry(turn) : null} />`)}
            </div>`}
          </main>
          ${away && html`<button type="button" class="latest" onClick=${() => this.toEnd()}>Latest ↓</button>`}
          ${this.renderComposer(busy)}
          <div class="unseen" aria-live="polite">${said}</div>
        </div>
      </div>
    `;
  }

  renderList() {
    const { conversations, current } = this.state;
    return html`
      <nav class="list" aria-label="Conversations">
        <button type="button" class="new" onClick=${() => this.startNew()}>New chat</button>
        <ul>
          ${conversations.map((one) => html`<li key=${one.id}>
            <button type="button" aria-current=${one === current ? "true" : "false"} onClick=${() => this.choose(one)}>
              <span>${one.title}</span>${this.running.has(one) && html`<span class="dot" title="answering"></span>`}
            </button>
          </li>`)}
        </ul>
        <p class="small">Chats are listed until you reload the page. Runs stay in the server's journal.</p>
      </nav>
      <button type="button" class="veil" tabindex="-1" aria-label="Close the list" onClick=${() => this.setState({ listOpen: false })}></button>
    `;
  }

  renderHeader() {
    const { models, model, listOpen } = this.state;
    return html`
      <header>
        <button type="button" class="menu" aria-expanded=${listOpen ? "true" : "false"} aria-label="Conversations"
          onClick=${() => this.setState({ listOpen: !listOpen })}>☰</button>
        <h1><img src="/web/icon.svg" alt="" width="24" height="24" />Treadle</h1>
        ${models.length > 0 && html`<label class="model"><span class="unseen">Model</span>
          <select value=${model} onChange=${(event) => this.setState({ model: event.target.value })}>
            ${models.map((name) => html`<option key=${name} value=${name} selected=${name === model}>${name}</option>`)}
          </select>
        </label>`}
        <button type="button" class="new" aria-label="New chat" onClick=${() => this.startNew()}>New</button>
      </header>
    `;
  }

  renderEmpty() {
    const { tools, trouble } = this.state;
    return html`
      <section class="empty">
        <h2>What would you like to know?</h2>
        ${trouble
          ? html`<div class="note" data-state="failed" role="alert"><p><strong>${trouble.message}</strong> ${trouble.advice}</p>
              <button type="button" onClick=${() => this.load()}>Try again</button></div>`
          : html`<p>Ask in plain words. When a tool is needed, Treadle runs it and shows what it did.</p>`}
        <ul class="examples">
          ${EXAMPLES.map((example) => html`<li key=${example}>
            <button type="button" onClick=${() => this.send(example)}>${example}</button>
          </li>`)}
        </ul>
        ${tools.length > 0 && html`<p class="tools">Tools on this server:
          ${tools.map((tool) => html`<code key=${tool.spec.name} title=${tool.spec.description}>${tool.spec.name}</code>`)}</p>`}
      </section>
    `;
  }

  renderComposer(busy) {
    return html`
      <form class="composer" aria-label="Ask" onSubmit=${(event) => this.onSubmit(event)}>
        <div class="field">
          <label class="unseen" for="question">Your question</label>
          <textarea id="question" rows="1" placeholder="Ask something" autocomplete="off" enterkeyhint="send"
            ref=${(node) => (this.input = node)} onInput=${() => this.fit()} onKeyDown=${(event) => this.onKey(event)}></textarea>
          ${busy
            ? html`<button type="button" class="stop" onClick=${() => this.stopCurrent()}>Stop</button>`
            : html`<button type="submit" class="send">Send</button>`}
        </div>
        <p class="small hints"><kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> begins a new line, <kbd>Esc</kbd> stops.</p>
      </form>
    `;
  }

  onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.onSubmit(event);
  }

  onSubmit(event) {
    event.preventDefault();
    if (this.running.has(this.state.current)) return;
    const question = this.input.value;
    this.input.value = "";
    this.fit();
    this.send(question);
  }

  /** Let the field grow with its text. */
  fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  onScroll() {
    const left = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight;
    const away = left > NEAR_END_PX;
    if (away !== this.state.away) this.setState({ away });
  }

  toEnd() {
    this.setState({ away: false });
  }
}

const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
