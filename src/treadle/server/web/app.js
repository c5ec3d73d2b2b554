// @ts-check
// The chat page: which conversations there are, what is being asked, and the keys. The server decides and runs
// everything; this page asks, shows, and can stop.

import { Component, render } from "./vendor/preact.js";
import {
  addTurn,
  applyEvent,
  fail,
  hasContent,
  isEnding,
  knownConversation,
  lastResponseId,
  lose,
  newConversation,
  stop,
} from "./conversation.js";
import { readDurations, readTurns } from "./history.js";
import {
  canRemember,
  forgetChat,
  onOtherTab,
  openChat,
  recall,
  rememberChat,
  rememberModel,
  rememberOpen,
} from "./memory.js";
import { ChatList, ChatNote, ModelField, Welcome } from "./panes.js";
import { ask, getJson, Trouble } from "./stream.js";
import { html, TurnView } from "./views.js";

/**
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("./conversation.js").Turn} Turn
 */

const REDRAW_MS = 50;
const NEAR_END_PX = 80;
const GONE = "The server no longer has this chat. What you ask now begins a new one.";
const NOT_WHOLE = "The beginning of this chat is not shown: it is long ago, or the server no longer has it.";

class App extends Component {
  constructor() {
    super();
    const { model, isTyped, rows } = recall();
    const known = rows.map(knownConversation);
    const current = known.find((one) => one.id === openChat()) ?? newConversation();
    this.state = {
      conversations: known.includes(current) ? known : [current, ...known],
      current,
      models: /** @type {string[] | null} */ (null),
      model,
      isTyped,
      isKept: canRemember(),
      tools: /** @type {any[]} */ ([]),
      trouble: /** @type {Trouble | null} */ (null),
      listOpen: false,
      away: false,
      said: "",
    };
    /** @type {Map<Conversation, AbortController>} */
    this.running = new Map();
    this.redrawTimer = 0;
    this.announced = { part: "", length: 0 };
  }

  componentDidMount() {
    this.load();
    this.read(this.state.current);
    this.input?.focus();
    onOtherTab(() => this.meetOthers());
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
      const wanted = this.state.current.model || this.state.model;
      // A model that was once chosen from a list and has left it is not wanted by anyone; one that was typed is.
      const stays = this.state.isTyped || names.length === 0 || names.includes(wanted);
      this.setState({ models: names, model: stays ? wanted : names[0], tools: tools.tools, trouble: null });
    } catch (error) {
      this.setState({ models: [], trouble: asTrouble(error) });
    }
  }

  /**
   * Fetch what was said in a conversation of which only the title is known.
   * @param {Conversation} conversation
   */
  async read(conversation) {
    if (conversation.reading !== "unread") return;
    Object.assign(conversation, { reading: "reading", trouble: null });
    this.redraw();
    try {
      const { turns, isWhole } = await readTurns(conversation.lastId);
      const note = isWhole ? "" : turns.length > 0 ? NOT_WHOLE : GONE;
      Object.assign(conversation, { turns, note, reading: "read" });
    } catch (error) {
      Object.assign(conversation, { reading: "unread", trouble: asTrouble(error) });
    }
    this.redraw();
  }

  /** Take over what another tab has added to the list, and what it has asked in a chat that rests here. */
  meetOthers() {
    const { conversations, current } = this.state;
    for (const row of recall().rows) {
      const one = conversations.find((/** @type {Conversation} */ other) => other.id === row.id);
      if (!one) conversations.push(knownConversation(row));
      else if (one.lastId !== row.lastId && !this.running.has(one)) Object.assign(one, row, { reading: "unread" });
    }
    this.read(current);
    this.redraw();
  }

  /**
   * @param {string} question
   * @param {import("./conversation.js").Part[][]} earlier
   */
  async send(question, earlier = []) {
    const conversation = this.state.current;
    const text = question.trim();
    if (!text || !this.isReady(conversation)) return;
    const previous = lastResponseId(conversation);
    const turn = addTurn(conversation, text, earlier);
    const control = new AbortController();
    this.running.set(conversation, control);
    this.announced = { part: "", length: 0 };
    conversation.model = this.state.model;
    this.setState({ away: false, said: "" });
    const body = { model: conversation.model, input: text, ...(previous && { previous_response_id: previous }) };
    try {
      await this.follow(conversation, turn, body, control.signal);
    } catch (error) {
      if (error instanceof Trouble) fail(turn, error.message, error.advice);
      else lose(turn);
    }
    if (control.signal.aborted && turn.state !== "done") stop(turn);
    this.running.delete(conversation);
    this.redraw();
    this.announce(turn, true);
    await readDurations(turn);
    this.redraw();
  }

  /**
   * @param {Conversation} conversation
   * @param {Turn} turn
   * @param {{model: string, input: string, previous_response_id?: string}} body
   * @param {AbortSignal} signal
   */
  async follow(conversation, turn, body, signal) {
    for await (const event of ask(body, signal)) {
      applyEvent(turn, event);
      if (turn.responseId !== conversation.lastId && turn.responseId) this.keep(conversation, turn.responseId);
      this.redrawSoon();
      if (isEnding(event)) return;
    }
    lose(turn);
  }

  /**
   * Let the list know a conversation by its newest response, from the moment there is one.
   * @param {Conversation} conversation
   * @param {string} responseId
   */
  keep(conversation, responseId) {
    conversation.lastId = responseId;
    conversation.note = "";
    rememberChat(conversation);
    rememberOpen(this.state.current.id);
  }

  /** @param {Conversation} conversation */
  isReady(conversation) {
    return conversation.reading === "read" && !this.running.has(conversation);
  }

  stopCurrent() {
    this.running.get(this.state.current)?.abort();
    this.input?.focus();
  }

  onEscape() {
    if (this.state.listOpen) this.setState({ listOpen: false });
    else this.stopCurrent();
  }

  /**
   * Ask again; what came of the question stays as an earlier try.
   * @param {Turn} turn
   */
  retry(turn) {
    const { current } = this.state;
    if (!this.isReady(current)) return;
    current.turns = current.turns.filter((/** @type {Turn} */ other) => other !== turn);
    this.send(turn.question, hasContent(turn.parts) ? [...turn.earlier, turn.parts] : turn.earlier);
  }

  startNew() {
    const fresh = (/** @type {Conversation} */ one) => one.turns.length === 0 && !one.lastId;
    const empty = this.state.conversations.find(fresh);
    const current = empty ?? newConversation();
    if (!empty) this.setState({ conversations: [current, ...this.state.conversations] });
    this.choose(current);
  }

  /** @param {Conversation} conversation */
  choose(conversation) {
    const { model } = conversation;
    const isListed = this.state.models?.includes(model) ?? false;
    rememberOpen(conversation.id);
    this.setState(
      { current: conversation, listOpen: false, away: false, ...(model && { model, isTyped: !isListed }) },
      () => this.input?.focus(),
    );
    this.read(conversation);
  }

  /** @param {Conversation} conversation */
  remove(conversation) {
    this.running.get(conversation)?.abort();
    forgetChat(conversation.id);
    const conversations = this.state.conversations.filter((/** @type {Conversation} */ one) => one !== conversation);
    this.setState({ conversations }, () => {
      if (this.state.current === conversation) this.startNew();
    });
  }

  /**
   * @param {string} model
   * @param {boolean} isTyped
   */
  setModel(model, isTyped) {
    rememberModel(model, isTyped);
    this.setState({ model, isTyped });
  }

  /** Draw at most once in REDRAW_MS, however many events come. */
  redrawSoon() {
    this.redrawTimer ||= setTimeout(() => this.redraw(), REDRAW_MS);
  }

  redraw() {
    clearTimeout(this.redrawTimer);
    this.redrawTimer = 0;
    const { current } = this.state;
    const turn = current.turns.at(-1);
    if (turn && this.running.has(current)) this.announce(turn, false);
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
    const { conversations, current, isKept, listOpen, away, said } = this.state;
    const busy = this.running.has(current);
    return html`
      <div class="frame" data-list=${listOpen ? "open" : "closed"}>
        <a class="skip" href="#question">Skip to the question</a>
        <${ChatList} conversations=${conversations} current=${current} isKept=${isKept}
          isRunning=${(one) => this.running.has(one)} onNew=${() => this.startNew()}
          onChoose=${(one) => this.choose(one)} onRemove=${(one) => this.remove(one)} />
        <button type="button" class="veil" tabindex="-1" aria-label="Close the list"
          onClick=${() => this.setState({ listOpen: false })}></button>
        <div class="main">
          ${this.renderHeader()}
          <main class="log" ref=${(node) => (this.log = node)} onScroll=${() => this.onScroll()} tabindex="-1">
            <${ChatNote} conversation=${current} onRead=${() => this.read(current)} />
            ${current.turns.length > 0 ? this.renderTurns(current, busy) : current.reading === "read" && this.renderWelcome()}
          </main>
          ${away && html`<button type="button" class="latest" onClick=${() => this.setState({ away: false })}>Latest ↓</button>`}
          ${this.renderComposer(busy)}
          <div class="unseen" aria-live="polite">${said}</div>
        </div>
      </div>
    `;
  }

  renderHeader() {
    const { models, model, isTyped, listOpen } = this.state;
    return html`
      <header>
        <button type="button" class="menu" aria-expanded=${listOpen ? "true" : "false"} aria-label="Conversations"
          onClick=${() => this.setState({ listOpen: !listOpen })}>☰</button>
        <h1><img src="/web/icon.svg" alt="" width="24" height="24" /><span>Treadle</span></h1>
        ${models && html`<${ModelField} models=${models} model=${model} isTyped=${isTyped}
          onModel=${(name, typed) => this.setModel(name, typed)} />`}
        <button type="button" class="new" aria-label="New chat" onClick=${() => this.startNew()}>New</button>
      </header>
    `;
  }

  /**
   * @param {Conversation} current
   * @param {boolean} busy
   */
  renderTurns(current, busy) {
    return html`<div class="turns">
      ${current.turns.map((turn, position) => html`<${TurnView} key=${turn.id} turn=${turn}
        onRetry=${position === current.turns.length - 1 && !busy ? () => this.retry(turn) : null} />`)}
    </div>`;
  }

  renderWelcome() {
    const { tools, model, models, trouble } = this.state;
    return html`<${Welcome} tools=${tools} model=${model} isLoaded=${models !== null && !trouble} trouble=${trouble}
      onLoad=${() => this.load()} onAsk=${(question) => this.send(question)} />`;
  }

  /** The two buttons have keys: patched into the other, a Stop that is being clicked would become a Send. */
  renderComposer(busy) {
    return html`
      <form class="composer" aria-label="Ask" onSubmit=${(event) => this.onSubmit(event)}>
        <div class="field">
          <label class="unseen" for="question">Your question</label>
          <textarea id="question" rows="1" placeholder="Ask something" autocomplete="off" enterkeyhint="send"
            ref=${(node) => (this.input = node)} onInput=${() => this.fit()} onKeyDown=${(event) => this.onKey(event)}></textarea>
          ${busy
            ? html`<button key="stop" type="button" class="stop" onClick=${() => this.stopCurrent()}>Stop</button>`
            : html`<button key="send" type="submit" class="send">Send</button>`}
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
    if (!this.isReady(this.state.current)) return;
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
}

/** @param {unknown} error */
function asTrouble(error) {
  return error instanceof Trouble ? error : new Trouble("The page could not be set up.", "Reload it.");
}

const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
