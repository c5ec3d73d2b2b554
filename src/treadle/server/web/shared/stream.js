// @ts-check
// One event stream for all tabs of a browser: HTTP/1.1 allows six connections, and a seventh tab would not load.
// The tab that holds a lock reads the stream and tells the others over a channel; a tab that has been hidden for a
// while gives the lock up. What comes can come twice and is then without effect; a gap is noticed and filled.

/**
 * @typedef {{run: string, from: number, n: number, ops: any[]}} Ops what happened in a run: its events above `from` up to `n`
 * @typedef {{n: number, tell: (frame: Ops) => void}} Watch
 */

import { kept } from "./ui.js";

const PATH = "/treadle/v1/live";
const HIDDEN_MS = 30_000;
const RETRY_MS = [300, 600, 1_200, 2_500, 5_000];
const NAME = "treadle-live";

class Live {
  constructor() {
    /** @type {Map<string, Set<(value: any) => void>>} */
    this.listeners = new Map();
    /** @type {Map<string, Set<Watch>>} what this tab watches */
    this.watches = new Map();
    /** @type {Map<string, Record<string, number>>} what other tabs watch */
    this.wants = new Map();
    this.tab = Math.random().toString(36).slice(2);
    this.state = "";
    this.cursor = "";
    /** @type {Record<string, number>} how far the open stream has told each run */
    this.told = {};
    /** @type {AbortController | null} */
    this.stream = null;
    /** @type {(() => void) | null} */
    this.release = null;
    this.isWanted = false;
    this.isAsking = false;
    /** @type {number | undefined} until it gives up the stream; 0 when it has */
    this.timer = undefined;
    /** @type {Promise<void> | undefined} */
    this.opening = undefined;
    // Pages that come over plain HTTP from another machine have no locks: each of their tabs is for itself.
    this.channel = navigator.locks && "BroadcastChannel" in globalThis ? new BroadcastChannel(NAME) : null;
    this.channel?.addEventListener("message", (event) => this.hear(event.data));
  }

  /**
   * Follow the changes of a topic: "run", "session", "approval", "proposal" (each a whole row), "gone" ({topic, id}),
   * "reset" (something may have been missed: read the lists again), "state" ("open" or "lost").
   * @param {string} topic
   * @param {(value: any) => void} callback
   * @returns {() => void} to be called to follow it no more
   */
  on(topic, callback) {
    const callbacks = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, callbacks.add(callback));
    this.start();
    return () => callbacks.delete(callback);
  }

  /**
   * Follow what is shown of a run, after its first `n` events.
   * @param {string} run
   * @param {number} n
   * @param {(frame: Ops) => void} tell
   * @returns {() => void} to be called to follow it no more
   */
  watch(run, n, tell) {
    const watch = { n, tell };
    const watches = this.watches.get(run) ?? new Set();
    this.watches.set(run, watches.add(watch));
    this.start();
    this.want();
    return () => {
      watches.delete(watch);
      if (watches.size === 0) this.watches.delete(run);
      this.want();
    };
  }

  start() {
    if (this.isWanted) return;
    this.isWanted = true;
    document.addEventListener("visibilitychange", () => this.onVisibility());
    addEventListener("pagehide", () => this.channel?.postMessage({ kind: "want", tab: this.tab, runs: {} }));
    this.lead();
    this.channel?.postMessage({ kind: "who" });
  }

  onVisibility() {
    clearTimeout(this.timer);
    if (document.hidden) this.timer = setTimeout(() => this.resign(), HIDDEN_MS);
    else {
      this.lead();
      this.want();
    }
  }

  /** Take the lock as soon as it is free; without locks every tab has a stream of its own. */
  lead() {
    if (this.release || this.isAsking) return;
    if (!navigator.locks) {
      this.release = () => {};
      this.open();
      return;
    }
    this.isAsking = true;
    navigator.locks.request(NAME, () => {
      this.isAsking = false;
      if (document.hidden && this.timer === 0) return undefined;
      this.channel?.postMessage({ kind: "who" });
      this.open();
      return new Promise((resolve) => (this.release = () => resolve(undefined)));
    });
  }

  resign() {
    this.timer = 0;
    this.stream?.abort();
    this.stream = null;
    this.release?.();
    this.release = null;
  }

  /** Say what this tab needs; whoever leads opens the stream again if it does not tell that yet. */
  want() {
    const runs = this.needs();
    this.channel?.postMessage({ kind: "want", tab: this.tab, runs });
    if (this.release) this.check(runs);
  }

  /** @returns {Record<string, number>} */
  needs() {
    return Object.fromEntries([...this.watches].map(([run, all]) => [run, Math.min(...[...all].map((one) => one.n))]));
  }

  /** @param {any} said by another tab */
  hear(said) {
    if (said.kind === "tell") this.tell(said.topic, said.value);
    else if (said.kind === "who") this.want();
    else if (said.kind === "reopen") this.open();
    else if (said.kind === "want") {
      this.wants.set(said.tab, said.runs);
      if (this.release) this.check(said.runs);
    }
  }

  /**
   * Open the stream again if a run is needed that it does not tell, or from an earlier place.
   * @param {Record<string, number>} runs
   */
  check(runs) {
    if (Object.entries(runs).some(([run, n]) => !(this.told[run] <= n))) this.open();
  }

  /** Have the stream opened again by whoever leads: what it shall tell was chosen anew. */
  reopen() {
    this.channel?.postMessage({ kind: "reopen" });
    this.open();
  }

  /** Open the stream for all tabs, once for what is asked within this moment. */
  open() {
    this.opening ??= Promise.resolve().then(() => {
      this.opening = undefined;
      if (!this.release) return;
      this.stream?.abort();
      this.stream = new AbortController();
      this.read(this.stream.signal);
    });
  }

  /** @param {AbortSignal} signal */
  async read(signal) {
    for (let failures = 0; !signal.aborted; ) {
      try {
        for await (const { event, data, id } of this.frames(signal)) {
          if (id) this.cursor = id;
          if (failures || this.state !== "open") this.share("state", "open");
          failures = 0;
          if (event === "ops") this.advance(data);
          if (event !== "kept_alive") this.share(event === "hello" ? "reset" : event, data);
        }
      } catch {
        // An aborted or a broken stream: the loop decides which.
      }
      if (signal.aborted) return;
      if (failures++ > 0) this.share("state", "lost");
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures, RETRY_MS.length) - 1]));
    }
  }

  /**
   * Note how far a run has been told to every tab that wants it.
   * @param {Ops} frame
   */
  advance({ run, n }) {
    this.told[run] = n;
    for (const runs of this.wants.values()) if (run in runs) runs[run] = n;
  }

  /** @param {AbortSignal} signal */
  async *frames(signal) {
    this.told = this.needs();
    for (const runs of this.wants.values())
      for (const [run, n] of Object.entries(runs)) this.told[run] = Math.min(this.told[run] ?? n, n);
    const query = new URLSearchParams({ runs: Object.entries(this.told).map(([run, n]) => `${run}:${n}`).join(",") });
    query.set("mode", kept("treadle.mode") || "cards");
    if (this.cursor) query.set("after", this.cursor);
    const headers = { accept: "text/event-stream", "x-treadle-page": "1" };
    const answer = await fetch(`${PATH}?${query}`, { signal, headers });
    if (!answer.ok || !answer.body) throw new Error(`status ${answer.status}`);
    yield* readFrames(answer.body);
  }

  /**
   * @param {string} topic
   * @param {any} value
   */
  share(topic, value) {
    this.channel?.postMessage({ kind: "tell", topic, value });
    this.tell(topic, value);
  }

  /**
   * @param {string} topic
   * @param {any} value
   */
  tell(topic, value) {
    if (topic === "ops") this.tellRun(value);
    if (topic === "state") this.state = value;
    for (const callback of this.listeners.get(topic) ?? []) callback(value);
  }

  /** @param {Ops} frame */
  tellRun(frame) {
    for (const watch of this.watches.get(frame.run) ?? []) {
      if (frame.n <= watch.n) continue;
      if (frame.from > watch.n) this.want();
      else {
        watch.n = frame.n;
        watch.tell(frame);
      }
    }
  }
}

export const live = new Live();

/**
 * Split a byte stream into server-sent events with JSON in them.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<{event: string, data: any, id: string}, void, void>}
 */
export async function* readFrames(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += decoder.decode(value, { stream: !done });
      const frames = rest.split("\n\n");
      rest = frames.pop() ?? "";
      yield* frames.map(readFrame).filter((frame) => frame.data !== undefined);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} frame */
function readFrame(frame) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of frame.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name) fields[name] = name === "data" && fields.data ? `${fields.data}\n${value}` : value;
  }
  return { event: fields.event ?? "message", id: fields.id ?? "", data: fields.data && JSON.parse(fields.data) };
}
