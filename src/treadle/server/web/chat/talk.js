// @ts-check
// A chat as data, and how what the server tells changes it. No DOM, no network. The server makes the parts; here they
// are only put where they belong, and whatever comes twice is without effect the second time.

/**
 * @typedef {{id: string, digest: string, reasons: string[], expires_at: number}} Approval
 * @typedef {{id: number, kind: "text" | "reasoning" | "status" | "tool", text: string, done: boolean, name: string,
 *   state: string, side: string, source: string, arguments: string, output: string, duration_ms?: number,
 *   sandbox?: string, truncated?: boolean, approval?: Approval | null, by?: string, reason?: string,
 *   is_edited?: boolean}} Part
 * @typedef {{text: string, files: {kind: string, name: string}[]}} Question
 * @typedef {{run_id: string, model: string, status: string, created_at: number, ended_at: number | null,
 *   question: Question, parts: Part[], n: number, siblings: string[], note: string, advice: string,
 *   usage: any, cost_usd: number | null, previous_id?: string | null, version: number, key: string, unsent?: any[]}} Turn
 * @typedef {{id: string, name: string, updated_at: number}} Session
 */

const ENDED = new Set(["requires_action", "completed", "incomplete", "failed", "cancelled", "unsent"]);

let made = 0;

/** Tell whether more will come. @param {Turn} turn */
export function isOpen(turn) {
  return !ENDED.has(turn.status);
}

/** Tell whether the server knows the turn. @param {Turn} turn */
export function isSent(turn) {
  return turn.run_id !== "";
}

/**
 * Make a turn of which the server does not know yet.
 * @param {string} text
 * @param {{kind: string, name: string}[]} files
 * @returns {Turn}
 */
export function newTurn(text, files) {
  const base = { run_id: "", model: "", status: "sending", created_at: Date.now() / 1000, ended_at: null, note: "" };
  const rest = { parts: [], n: 0, siblings: [], advice: "", usage: null, cost_usd: null, version: 0 };
  return { ...base, ...rest, question: { text, files }, key: `new ${++made}` };
}

/**
 * Let what happened in its run change a turn.
 * @param {Turn} turn
 * @param {any[]} ops
 */
export function apply(turn, ops) {
  for (const { op, ...said } of ops) CHANGES[op]?.(turn, said);
  turn.version++;
}

/** @type {Record<string, (turn: Turn, said: any) => void>} */
const CHANGES = {
  part: (turn, { part }) => {
    const place = turn.parts.findIndex((one) => one.id === part.id);
    if (place < 0) turn.parts.push(part);
    else turn.parts[place] = part;
  },
  text: (turn, { id, field, at, text }) => {
    const part = /** @type {any} */ (partOf(turn, id));
    if (part) part[field] = part[field].slice(0, at) + text;
  },
  set: (turn, { id, ...fields }) => Object.assign(partOf(turn, id) ?? {}, fields),
  parts: (turn, { parts }) => (turn.parts = parts),
  drop: (turn, { ids }) => (turn.parts = turn.parts.filter((part) => !ids.includes(part.id))),
  turn: (turn, fields) => Object.assign(turn, fields),
};

/**
 * @param {Turn} turn
 * @param {number} id
 */
function partOf(turn, id) {
  return turn.parts.find((part) => part.id === id);
}

/** @param {Turn} turn */
export function answerText(turn) {
  return turn.parts.flatMap((part) => (part.kind === "text" ? [part.text] : [])).join("\n\n");
}

/** Sum what all turns used. @param {Turn[]} turns */
export function totals(turns) {
  const used = turns.filter((turn) => turn.usage);
  const tokens = used.reduce((sum, { usage }) => sum + (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0), 0);
  const priced = used.filter((turn) => turn.cost_usd !== null && turn.cost_usd !== undefined);
  const usd = priced.length > 0 ? priced.reduce((sum, turn) => sum + (turn.cost_usd ?? 0), 0) : null;
  return { tokens, usd };
}

/** Return the first card that waits for a person. @param {Turn[]} turns */
export function firstAsked(turns) {
  return turns.flatMap((turn) => turn.parts).find((part) => part.state === "asking" && part.approval);
}

/** Tells screen readers whole sentences of an answer, never single tokens. */
export class Speaker {
  constructor() {
    this.part = "";
    this.length = 0;
  }

  /**
   * Return what is to be said now; nothing while a sentence is not complete.
   * @param {Turn} turn
   */
  next(turn) {
    const part = turn.parts.findLast((one) => one.kind === "text");
    if (!part) return "";
    const key = `${turn.run_id}:${part.id}`;
    if (this.part !== key) Object.assign(this, { part: key, length: 0 });
    const fresh = part.text.slice(this.length);
    const ends = [...fresh.matchAll(/[.!?…:](?=\s)|\n/g)];
    const length = isOpen(turn) ? (ends.at(-1)?.index ?? -1) + 1 : fresh.length;
    this.length += length;
    return fresh.slice(0, length).replace(/[`*_#>|]/g, "").trim();
  }
}
