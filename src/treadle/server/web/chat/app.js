// @ts-check
// The chat page: which chats there are, which one is open, what is asked in it, and the keys. The server keeps and
// decides everything; this page asks, shows what it is told, and can stop.

import { asTrouble, getJson, me, send, Trouble } from "../shared/api.js";
import { live } from "../shared/stream.js";
import { announce, Component, count, Failed, html, keep, kept, KeyHelp, money, nextTheme, onKeys, render, theme, Waiting } from "../shared/ui.js";
import { Composer } from "./composer.js";
import { ChatList, Menu, ModelField, Welcome } from "./panes.js";
import { answerText, apply, firstAsked, isOpen, isSent, newTurn, Speaker, totals } from "./talk.js";
import { TurnView } from "./turn.js";

/**
 * @typedef {import("./talk.js").Turn} Turn
 * @typedef {import("./talk.js").Session} Session
 */

const API = "/treadle/v1";
const REDRAW_MS = 50;
const SEARCH_MS = 250;
const NEAR_END_PX = 80;
const TOUCHED_MS = 1_000;
const PAGE = 50;
/** @type {[string, string][]} */
const KEYS = [
  ["Enter", "send; Shift+Enter begins a new line"],
  ["Esc", "stop the answer, or close what is open"],
  ["/", "search all chats"],
  ["Alt+n", "new chat"],
  ["j k", "next and previous turn"],
  ["i", "write a question"],
  ["e", "edit the last question"],
  ["r", "ask the last question again"],
  ["y", "copy the last answer"],
  ["a d", "approve or deny the first call that waits"],
  ["t", "other colours"],
  ["?", "this list"],
];

class App extends Component {
  constructor() {
    super();
    this.state = {
      sessions: /** @type {Session[]} */ ([]),
      hasMoreChats: false,
      search: "",
      running: /** @type {Map<string, string>} runs that go on, and their chats */ (new Map()),
      id: "",
      session: /** @type {Session | null} the open one, which a long list or a search may not hold */ (null),
      turns: /** @type {Turn[]} */ ([]),
      hasMore: false,
      reading: false,
      trouble: /** @type {Trouble | null} */ (null),
      models: /** @type {any[] | null} */ (null),
      model: kept("treadle.model"),
      isTyped: kept("treadle.typed") === "1",
      tools: /** @type {any[]} */ ([]),
      person: { scope: "operator", needs_login: false },
      listOpen: false,
      dialog: "",
      away: false,
      isLost: false,
      queued: /** @type {{text: string, files: any[]}[]} */ ([]),
    };
    /** @type {HTMLElement | null} */
    this.log = null;
    /** @type {Composer | null} */
    this.composer = null;
    this.refer = (/** @type {Composer} */ composer) => (this.composer = composer);
    this.timer = 0;
    this.frame = 0;
    this.reads = 0;
    this.searching = 0;
    this.top = 0;
    this.touched = -TOUCHED_MS;
    this.speaker = new Speaker();
    /** @type {(() => void) | null} */
    this.unwatch = null;
  }

  componentDidMount() {
    this.load();
    this.open(location.hash.slice(1));
    // Another tab may have opened the stream long ago: nothing would say here that the lists are to be read.
    this.readLists();
    addEventListener("hashchange", () => this.open(location.hash.slice(1)));
    live.on("reset", () => this.refresh());
    live.on("session", (row) => this.meetSession(row));
    live.on("gone", ({ topic, id }) => topic === "session" && this.setState({ sessions: this.without(id) }));
    live.on("run", (row) => this.meetRun(row));
    live.on("state", (state) => this.setState({ isLost: state === "lost" }));
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"])
      this.log?.addEventListener(kind, () => (this.touched = performance.now()), { passive: true });
    onKeys({
      Escape: () => this.onEscape(),
      "?": () => this.setState({ dialog: "keys" }),
      "/": (event) => this.focus(event, "search"),
      i: (event) => this.focus(event, "question"),
      "Alt+n": () => this.startNew(),
      t: () => announce(`Colours: ${nextTheme()}`),
      j: () => this.step(1),
      k: () => this.step(-1),
      e: (event) => this.press(event, ".edit"),
      r: (event) => this.press(event, ".again"),
      y: () => navigator.clipboard?.writeText(answerText(this.state.turns.at(-1) ?? newTurn("", []))),
      a: () => this.decideFirst(true),
      d: () => this.decideFirst(false),
    });
  }

  componentDidUpdate() {
    const { session } = this.state;
    document.title = session ? `${session.name} · Treadle` : "Treadle";
    this.toEnd();
    // What comes into view only now is often taller than it was taken for.
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.toEnd();
    });
  }

  toEnd() {
    if (!this.state.away && this.log) this.log.scrollTop = this.log.scrollHeight;
  }

  /** Show the end and stay there: what moves the page now was not the person. @param {object} [more] */
  stay(more) {
    this.touched = -TOUCHED_MS;
    this.setState({ ...more, away: false });
  }

  get busy() {
    return this.state.turns.some(isOpen);
  }

  get canAct() {
    return this.state.person.scope !== "viewer";
  }

  /** Read what the page needs to know of the server. */
  async load() {
    try {
      const [person, { models, default: first }, { tools }] = await Promise.all([me(), getJson(`${API}/models`), getJson(`${API}/tools`)]);
      const names = models.map((/** @type {any} */ one) => one.id);
      // A model that was once chosen from a list and has left it is not wanted by anyone; one that was typed is.
      const stays = this.state.isTyped || names.length === 0 || names.includes(this.state.model);
      const model = stays ? this.state.model : names.includes(first) ? first : names[0];
      this.setState({ person, models, model, tools, isTyped: this.state.isTyped && this.state.model !== "", trouble: null });
    } catch (error) {
      this.setState({ models: [], trouble: asTrouble(error) });
    }
  }

  /** Read everything again: something may have been missed. */
  async refresh() {
    await this.readLists();
    if (this.state.id && !this.busy) this.read(this.state.id);
  }

  async readLists() {
    try {
      const [{ runs }] = await Promise.all([getJson(`${API}/runs?status=running&limit=200`), this.list()]);
      this.setState({ running: new Map(runs.map((/** @type {any} */ run) => [run.id, run.session_id])) });
    } catch {
      // The stream says so when the server is away; the lists stay as they are.
    }
  }

  /** @param {string} [before] the last chat that is listed */
  async list(before = "") {
    const { search, sessions } = this.state;
    const query = new URLSearchParams({ limit: String(PAGE), ...(search && { search }), ...(before && { before }) });
    const page = await getJson(`${API}/sessions?${query}`);
    if (search !== this.state.search) return;
    this.setState({ sessions: before ? [...sessions, ...page.sessions] : page.sessions, hasMoreChats: page.has_more });
  }

  /** @param {string} id @returns {Session[]} */
  without(id) {
    return this.state.sessions.filter((/** @type {Session} */ one) => one.id !== id);
  }

  /** Put a chat first in the list, as it is now. @param {any} row */
  meetSession(row) {
    if (row.id === this.state.id) this.setState({ session: row });
    if (!this.state.search) this.setState({ sessions: [row, ...this.without(row.id)].sort((a, b) => b.updated_at - a.updated_at) });
  }

  /** Hear of a run, wherever it was started: another tab or device may ask in the chat that is open here. @param {any} row */
  meetRun(row) {
    const running = new Map(this.state.running);
    if (["queued", "running", "waiting"].includes(row.status)) running.set(row.id, row.session_id);
    else running.delete(row.id);
    this.setState({ running });
    const isKnown = this.state.turns.some((/** @type {Turn} */ turn) => turn.run_id === row.id || !isSent(turn));
    if (row.session_id === this.state.id && row.session_id && !isKnown) this.read(row.session_id);
  }

  /** Open a chat, or none. @param {string} id */
  open(id) {
    if (id === this.state.id && id) return;
    this.follow(null);
    this.takeBack();
    this.setState({ id, session: null, turns: [], hasMore: false, listOpen: false, away: false, trouble: null, reading: Boolean(id) });
    if (id) this.read(id);
    this.composer?.input?.focus();
  }

  startNew() {
    history.pushState(null, "", "/");
    this.open("");
  }

  /**
   * Read the turns of a chat, and follow the one that goes on.
   * @param {string} id
   */
  async read(id) {
    const number = ++this.reads;
    try {
      const { turns, has_more, session } = await getJson(pathOf(id, `/turns?limit=30&mode=${mode()}`));
      if (number !== this.reads || id !== this.state.id) return;
      const met = turns.map((/** @type {Turn} */ turn) => this.meetTurn(turn));
      this.setState({ turns: met, hasMore: has_more, reading: false, trouble: null, id: session.id, session });
      this.follow(met.find(isOpen) ?? null);
    } catch (error) {
      if (number === this.reads) this.setState({ reading: false, trouble: asTrouble(error) });
    }
  }

  /** Keep what is shown of a turn already, unless the server knows more by now. @param {Turn} turn */
  meetTurn(turn) {
    const shown = this.state.turns.find((/** @type {Turn} */ one) => one.run_id === turn.run_id);
    if (!shown) return Object.assign(turn, { version: 0, key: turn.run_id });
    const fresh = turn.n > shown.n ? turn : { siblings: turn.siblings };
    return Object.assign(shown, fresh, { version: shown.version + 1 });
  }

  async readEarlier() {
    const { id, turns } = this.state;
    const { turns: earlier, has_more } = await getJson(pathOf(id, `/turns?limit=30&mode=${mode()}&before=${turns[0].run_id}`));
    const met = earlier.map((/** @type {Turn} */ turn) => this.meetTurn(turn));
    this.setState({ turns: [...met, ...this.state.turns], hasMore: has_more, away: true });
  }

  /** Show what happens in the run of a turn, until it ends. @param {Turn | null} turn */
  follow(turn) {
    this.unwatch?.();
    this.unwatch = turn && live.watch(turn.run_id, turn.n, ({ ops, n }) => {
      apply(turn, ops);
      turn.n = n;
      this.redrawSoon();
      if (!isOpen(turn)) {
        this.follow(null);
        this.redraw();
        this.askNext();
      }
    });
  }

  /** Ask what waits; who has stopped the answer before wants it back instead. */
  askNext() {
    const [next, ...rest] = this.state.queued;
    if (!next) return;
    if (this.state.turns.at(-1)?.status === "cancelled") this.takeBack();
    else this.setState({ queued: rest }, () => this.ask(next.text, next.files));
  }

  /** Give back to whoever wrote it what was to be asked next. */
  takeBack() {
    if (this.state.queued.length > 0) this.composer?.takeBack(this.state.queued);
    this.setState({ queued: [] });
  }

  /**
   * Ask in the open chat; the first question makes one, and what is asked while an answer comes waits for its end.
   * @param {string} text
   * @param {import("./composer.js").File64[]} files
   */
  async ask(text, files = []) {
    if (!this.canAct) return;
    if (this.busy) {
      this.setState({ queued: [...this.state.queued, { text, files }] });
      return;
    }
    const turn = newTurn(text, files.map(({ name }) => ({ kind: "file", name })));
    this.stay({ turns: [...this.state.turns, turn] });
    await this.post(turn, { input: text, files });
  }

  /** Ask a question anew, perhaps in other words; what came of it stays as another branch. */
  async again(/** @type {Turn} */ turn, /** @type {string | undefined} */ text = undefined) {
    if (this.busy) return;
    const fresh = newTurn(text ?? turn.question.text, turn.question.files);
    const { turns } = this.state;
    this.stay({ turns: [...turns.slice(0, turns.indexOf(turn)), fresh] });
    if (isSent(turn)) await this.post(fresh, { again: turn.run_id, ...(text && { input: text }) });
    else await this.post(fresh, { input: fresh.question.text, files: turn.unsent ?? [] });
  }

  /**
   * @param {Turn} turn
   * @param {any} body
   */
  async post(turn, body) {
    try {
      const id = this.state.id || (await this.create(turn.question.text || body.files?.[0]?.name || "Chat"));
      Object.assign(turn, await send("POST", pathOf(id, `/turns?mode=${mode()}`), { ...body, model: this.state.model.trim() }), { version: turn.version + 1 });
      if (id === this.state.id && this.state.turns.includes(turn)) {
        // A turn in which nothing was said is not gone on from: the new one stands beside it, as another branch.
        const before = this.state.turns.findIndex((/** @type {Turn} */ one) => isSent(one) && one.run_id === turn.previous_id);
        this.setState({ turns: [...this.state.turns.slice(0, before + 1), turn] });
        this.follow(turn);
      }
    } catch (error) {
      const { message, advice } = asTrouble(error);
      Object.assign(turn, { status: "unsent", note: message, advice, unsent: body.files, version: turn.version + 1 });
    }
    this.redraw();
  }

  /** @param {string} text */
  async create(text) {
    const row = await send("POST", `${API}/sessions`, { name: text.split("\n")[0].slice(0, 60).trim() || "Chat", numbered: true });
    history.pushState(null, "", `#${row.id}`);
    await new Promise((resolve) => this.setState({ id: row.id }, () => resolve(null)));
    this.meetSession(row);
    return row.id;
  }

  async stop() {
    const turn = this.state.turns.find(isOpen);
    this.composer?.input?.focus();
    if (turn && isSent(turn)) await send("POST", `${API}/runs/${turn.run_id}/cancel`).catch(() => this.read(this.state.id));
  }

  /** @param {string} run */
  async branch(run) {
    await send("POST", pathOf(this.state.id, "/branch"), { run }).catch(() => {});
    this.setState({ away: true });
    this.read(this.state.id);
  }

  /**
   * Tell the server what a person decided; whoever comes second is told what stands.
   * @param {import("./talk.js").Part} part
   * @param {any} choice
   * @returns {Promise<string>} what went wrong, if anything
   */
  async decide(part, choice) {
    try {
      const { name } = await me();
      await send("POST", `${API}/approvals/${part.approval?.id}`, { ...choice, by: name });
      return "";
    } catch (error) {
      const { message, advice } = asTrouble(error);
      return `${message} ${advice}`;
    }
  }

  /** @param {boolean} approve */
  async decideFirst(approve) {
    const part = firstAsked(this.state.turns);
    if (!part || !this.canAct) return;
    announce((await this.decide(part, { approve, digest: part.approval?.digest })) || (approve ? "Approved." : "Denied."));
  }

  async rename(/** @type {string} */ name) {
    const row = await send("PATCH", pathOf(this.state.id), { name }).catch(asTrouble);
    this.setState({ dialog: "" });
    if (row instanceof Trouble) this.setState({ trouble: row });
    else this.meetSession(row);
  }

  async remove() {
    const { id } = this.state;
    const failed = await send("DELETE", pathOf(id, "?runs=true")).catch(asTrouble);
    this.setState({ dialog: "" });
    if (failed) this.setState({ trouble: failed });
    else {
      this.setState({ sessions: this.without(id) });
      this.startNew();
    }
  }

  /** Show tools as cards or as lines: the server makes either. */
  switchMode() {
    keep("treadle.mode", mode() === "text" ? "cards" : "text");
    live.reopen();
    this.setState({ turns: [] }, () => this.state.id && this.read(this.state.id));
  }

  async logOut() {
    await send("POST", `${API}/logout`).catch(() => {});
    location.assign("/login");
  }

  /** @param {string} model @param {boolean} isTyped */
  setModel(model, isTyped) {
    keep("treadle.model", model);
    keep("treadle.typed", isTyped ? "1" : "");
    this.setState({ model, isTyped });
  }

  /** @param {string} search */
  setSearch(search) {
    this.setState({ search });
    clearTimeout(this.searching);
    this.searching = setTimeout(() => this.list().catch(() => {}), SEARCH_MS);
  }

  onEscape() {
    if (this.state.listOpen) this.setState({ listOpen: false });
    else this.stop();
  }

  /** @param {Event} event @param {string} id */
  focus(event, id) {
    event.preventDefault();
    if (id === "search") this.setState({ listOpen: true });
    setTimeout(() => document.getElementById(id)?.focus());
  }

  /** Press the last button of a kind. @param {Event} event @param {string} selector */
  press(event, selector) {
    event.preventDefault();
    /** @type {HTMLElement | undefined} */ ([...document.querySelectorAll(selector)].at(-1))?.click();
  }

  /** Move the focus to another turn. @param {number} by */
  step(by) {
    const turns = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".turn")]);
    const at = turns.findIndex((turn) => turn.contains(document.activeElement));
    const next = turns[at < 0 ? turns.length - 1 : Math.min(Math.max(at + by, 0), turns.length - 1)];
    this.setState({ away: true });
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  /** Draw at most once in REDRAW_MS, however much comes. */
  redrawSoon() {
    this.timer ||= setTimeout(() => this.redraw(), REDRAW_MS);
  }

  redraw() {
    clearTimeout(this.timer);
    this.timer = 0;
    const turn = this.state.turns.at(-1);
    const said = turn ? this.speaker.next(turn) : "";
    if (said && turn?.version) announce(said);
    this.forceUpdate();
  }

  /** Only a person leads the page away from the end; what grows or shrinks by itself does not. */
  onScroll() {
    if (!this.log) return;
    const { scrollTop, scrollHeight, clientHeight } = this.log;
    const isUp = scrollTop < this.top - 4 && performance.now() - this.touched < TOUCHED_MS;
    this.top = scrollTop;
    const away = scrollHeight - scrollTop - clientHeight > NEAR_END_PX && (this.state.away || isUp);
    if (away !== this.state.away) this.setState({ away });
  }

  render() {
    const { sessions, id, running, search, hasMoreChats, listOpen, away, isLost, models, model } = this.state;
    const known = models?.find((/** @type {any} */ one) => one.id === model);
    const takes = known ? known.takes : models?.some((/** @type {any} */ one) => one.takes.length > 0) ? ["image", "file"] : [];
    return html`
      <div class="frame" data-list=${listOpen ? "open" : "closed"}>
        <a class="skip" href="#question" onClick=${(/** @type {Event} */ event) => this.focus(event, "question")}>Skip to the question</a>
        <${ChatList} sessions=${sessions} currentId=${id} running=${new Set(running.values())} search=${search} hasMore=${hasMoreChats}
          onNew=${() => this.startNew()} onSearch=${(/** @type {string} */ text) => this.setSearch(text)}
          onMore=${() => this.list(sessions.at(-1)?.id)} />
        <button type="button" class="veil" tabindex="-1" aria-label="Close the list"
          onClick=${() => this.setState({ listOpen: false })}></button>
        <div class="main">
          ${this.renderHeader()}
          <main class="log" ref=${(/** @type {HTMLElement | null} */ node) => (this.log = node)} onScroll=${() => this.onScroll()} tabindex="-1">
            ${this.renderBody()}
          </main>
          ${away && html`<button type="button" class="latest" onClick=${() => this.stay()}>Latest ↓</button>`}
          <div>
            ${isLost && html`<p class="lost" role="status">The connection is lost. The answer goes on at the server; this page tries again.</p>`}
            ${this.renderQueue()}
            <${Composer} isBusy=${this.busy} canAct=${this.canAct} takes=${takes} onStop=${() => this.stop()}
              refer=${this.refer}
              onSend=${(/** @type {string} */ text, /** @type {any[]} */ files) => this.ask(text, files)} />
          </div>
        </div>
        ${this.renderDialog()}
      </div>
    `;
  }

  renderQueue() {
    const { queued } = this.state;
    const without = (/** @type {any} */ gone) => this.setState({ queued: queued.filter((/** @type {any} */ one) => one !== gone) });
    return queued.length > 0 && html`<ul class="files queue" aria-label="Asked when the answer is complete">
      ${queued.map((/** @type {any} */ one, /** @type {number} */ n) => html`<li key=${n}>Next: ${one.text.slice(0, 80)}
        <button type="button" class="plain" aria-label="Do not ask" onClick=${() => without(one)}>×</button></li>`)}
    </ul>`;
  }

  renderHeader() {
    const { models, model, isTyped, listOpen, turns } = this.state;
    const { tokens, usd } = totals(turns);
    return html`
      <header>
        <button type="button" class="menu" aria-expanded=${listOpen ? "true" : "false"} aria-label="Chats"
          onClick=${() => this.setState({ listOpen: !listOpen })}>☰</button>
        <h1><img src="/web/icon.svg" alt="" width="24" height="24" /><span>Treadle</span></h1>
        ${tokens > 0 && html`<span class="small totals" title="tokens and cost of this chat">${count(tokens)} tokens${usd !== null && ` · ${money(usd)}`}</span>`}
        ${models && html`<${ModelField} models=${models.map((/** @type {any} */ one) => one.id)} model=${model} isTyped=${isTyped}
          onModel=${(/** @type {string} */ name, /** @type {boolean} */ typed) => this.setModel(name, typed)} />`}
        <button type="button" class="plain" aria-label="More" aria-haspopup="dialog" onClick=${() => this.setState({ dialog: "menu" })}>⋯</button>
        <button type="button" class="new" aria-label="New chat" onClick=${() => this.startNew()}>New</button>
      </header>
    `;
  }

  renderBody() {
    const { turns, hasMore, reading, trouble, tools, model, models, id } = this.state;
    if (turns.length === 0 && reading) return html`<div class="aside"><${Waiting} label="Reading the chat" /></div>`;
    if (turns.length === 0 && (!id || !trouble))
      return html`<${Welcome} tools=${tools} model=${model} isLoaded=${models !== null && !trouble} canAct=${this.canAct} trouble=${trouble}
        onLoad=${() => this.load()} onAsk=${(/** @type {string} */ question) => this.ask(question)} />`;
    const acts = {
      isBusy: this.busy,
      canAct: this.canAct,
      onAgain: (/** @type {Turn} */ turn, /** @type {string | undefined} */ text) => this.again(turn, text),
      onBranch: (/** @type {string} */ run) => this.branch(run),
      onDecide: (/** @type {any} */ part, /** @type {any} */ choice) => this.decide(part, choice),
    };
    return html`
      ${trouble && html`<div class="aside"><${Failed} of=${trouble} onAction=${() => this.read(id)} /></div>`}
      <div class="turns">
        ${hasMore && html`<button type="button" class="box earlier" onClick=${() => this.readEarlier()}>Earlier turns</button>`}
        ${turns.map((/** @type {Turn} */ turn) => html`<${TurnView} key=${turn.key} turn=${turn} acts=${acts} />`)}
      </div>
    `;
  }

  renderDialog() {
    const { dialog, person, session } = this.state;
    const onClose = () => this.setState({ dialog: "" });
    if (dialog === "keys") return html`<${KeyHelp} keys=${KEYS} onClose=${onClose} />`;
    if (dialog !== "menu") return null;
    return html`<${Menu} session=${session} canAct=${this.canAct} theme=${theme()} mode=${mode()}
      needsLogin=${person.needs_login} onRename=${(/** @type {string} */ name) => this.rename(name)} onDelete=${() => this.remove()}
      onTheme=${() => { nextTheme(); this.redraw(); }} onMode=${() => this.switchMode()}
      onKeys=${() => this.setState({ dialog: "keys" })} onLogout=${() => this.logOut()} onClose=${onClose} />`;
  }
}

/**
 * Return where a chat is. Its id may be of a link that somebody else made: it must lead to no other place.
 * @param {string} id
 * @param {string} [rest]
 */
function pathOf(id, rest = "") {
  return `${API}/sessions/${encodeURIComponent(id)}${rest}`;
}

/** How tools are shown: as cards, or one line each. */
function mode() {
  return kept("treadle.mode") === "text" ? "text" : "cards";
}

const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
