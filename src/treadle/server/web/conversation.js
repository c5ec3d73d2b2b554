// @ts-check
// A conversation as data, and how the events of a response change it. No DOM, no network.

/**
 * @typedef {{kind: "text", id: string, text: string, done: boolean}} TextPart
 * @typedef {{kind: "reasoning", id: string, text: string, done: boolean}} ReasoningPart
 * @typedef {{kind: "tool", id: string, name: string, source: string, arguments: string, output: string,
 *   state: "writing" | "running" | "done" | "failed", startedAt: number, tookMs: number}} ToolPart
 * @typedef {TextPart | ReasoningPart | ToolPart} Part
 * @typedef {{id: number, question: string, parts: Part[], responseId: string,
 *   state: "open" | "done" | "stopped" | "failed", note: string, advice: string}} Turn
 * @typedef {{id: number, title: string, turns: Turn[]}} Conversation
 */

let count = 0;

/** @returns {Conversation} */
export function newConversation() {
  return { id: ++count, title: "New chat", turns: [] };
}

/**
 * @param {Conversation} conversation
 * @param {string} question
 * @returns {Turn}
 */
export function addTurn(conversation, question) {
  const turn = { id: ++count, question, parts: [], responseId: "", state: /** @type {const} */ ("open"), note: "", advice: "" };
  if (conversation.turns.length === 0) conversation.title = question.split("\n")[0].slice(0, 60);
  conversation.turns.push(turn);
  return turn;
}

/**
 * Name the response that the next question continues: the newest that the server will have kept.
 * @param {Conversation} conversation
 */
export function lastResponseId(conversation) {
  const kept = conversation.turns.filter((turn) => turn.responseId && (turn.state === "done" || turn.state === "stopped"));
  return kept.at(-1)?.responseId;
}

/** @param {Turn} turn */
export function answerText(turn) {
  const texts = turn.parts.flatMap((part) => (part.kind === "text" ? [part.text] : []));
  return texts.join("\n\n");
}

const ENDINGS = new Set(["response.completed", "response.incomplete", "response.failed"]);

/** @type {Record<string, string>} */
const CUT_SHORT = {
  max_output_tokens: "The model reached the length it may write.",
  content_filter: "The model's provider withheld the rest.",
};

/** @type {Record<string, (turn: Turn, event: any) => void>} */
const CHANGES = {
  "response.created": (turn, event) => {
    turn.responseId = event.response.id;
  },
  "response.output_item.added": (turn, event) => addPart(turn, event.item),
  "response.output_text.delta": addText,
  "response.refusal.delta": addText,
  "response.reasoning_summary_text.delta": addText,
  "response.reasoning_text.delta": addText,
  "response.mcp_call_arguments.delta": addArguments,
  "response.function_call_arguments.delta": addArguments,
  "response.mcp_call.in_progress": (turn, event) => startTool(find(turn, event.item_id)),
  "response.mcp_call_arguments.done": (turn, event) => startTool(find(turn, event.item_id)),
  "response.output_item.done": (turn, event) => finishPart(turn, event.item),
  "response.completed": (turn, event) => finish(turn, event.response),
  "response.incomplete": (turn, event) => finish(turn, event.response),
  "response.failed": (turn, event) =>
    fail(turn, event.response.error?.message || "The answer broke off.", "Try again; what came so far stays here."),
  error: (turn, event) => fail(turn, event.message || "The answer broke off.", "Try again."),
};

/**
 * Let one event of the stream change the turn.
 * @param {Turn} turn
 * @param {any} event
 */
export function applyEvent(turn, event) {
  CHANGES[event.type]?.(turn, event);
}

/** @param {any} event */
export function isEnding(event) {
  return ENDINGS.has(event.type) || event.type === "error";
}

/**
 * @param {Turn} turn
 * @param {string} note
 * @param {string} advice
 */
export function fail(turn, note, advice) {
  Object.assign(turn, { state: "failed", note, advice });
  closeParts(turn);
}

/** @param {Turn} turn */
export function stop(turn) {
  Object.assign(turn, { state: "stopped", note: "You stopped this answer.", advice: "" });
  closeParts(turn);
}

/**
 * @param {Turn} turn
 * @param {any} response
 */
function finish(turn, response) {
  const reason = response.incomplete_details?.reason;
  const limit = response.metadata?.treadle_limit;
  turn.state = "done";
  if (reason) turn.note = CUT_SHORT[reason] || `The answer is incomplete (${reason}).`;
  else if (limit) turn.note = `A limit of the run was reached (${limit}).`;
  closeParts(turn);
}

/**
 * @param {Turn} turn
 * @param {any} item
 */
function addPart(turn, item) {
  if (item.type === "message") turn.parts.push({ kind: "text", id: item.id, text: "", done: false });
  else if (item.type === "reasoning") turn.parts.push({ kind: "reasoning", id: item.id, text: "", done: false });
  else if (item.type === "mcp_call" || item.type === "function_call") turn.parts.push(newTool(item));
}

/**
 * @param {any} item
 * @returns {ToolPart}
 */
function newTool(item) {
  const source = item.server_label || "client";
  const base = { id: item.id, name: item.name, source, arguments: item.arguments || "", output: "", tookMs: 0 };
  return { kind: "tool", ...base, state: "writing", startedAt: performance.now() };
}

/**
 * @param {Turn} turn
 * @param {string} id
 */
function find(turn, id) {
  return turn.parts.find((part) => part.id === id);
}

/**
 * @param {Turn} turn
 * @param {any} event
 */
function addText(turn, event) {
  const part = find(turn, event.item_id);
  if (part && part.kind !== "tool") part.text += event.delta;
}

/**
 * @param {Turn} turn
 * @param {any} event
 */
function addArguments(turn, event) {
  const part = find(turn, event.item_id);
  if (part?.kind === "tool") part.arguments += event.delta;
}

/** @param {Part | undefined} part */
function startTool(part) {
  if (part?.kind !== "tool" || part.state !== "writing") return;
  part.state = "running";
  part.startedAt = performance.now();
}

/**
 * @param {Turn} turn
 * @param {any} item
 */
function finishPart(turn, item) {
  const part = find(turn, item.id);
  if (part?.kind !== "tool") {
    if (part) part.done = true;
    return;
  }
  const error = errorText(item.error);
  part.arguments = item.arguments ?? part.arguments;
  part.output = error ?? item.output ?? "";
  part.state = error === null && item.status !== "failed" && item.status !== "incomplete" ? "done" : "failed";
  part.tookMs = performance.now() - part.startedAt;
}

/** @param {any} error */
function errorText(error) {
  if (error === null || error === undefined) return null;
  if (typeof error === "string") return error;
  const content = error.content ?? error.message;
  return typeof content === "string" ? content : JSON.stringify(content ?? error);
}

/** @param {Turn} turn */
function closeParts(turn) {
  for (const part of turn.parts) {
    if (part.kind !== "tool") part.done = true;
    else if (part.state === "writing" || part.state === "running") part.state = "failed";
  }
}
