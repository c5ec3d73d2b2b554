// @ts-check
// A conversation as data, and how the events of a response change it. No DOM, no network.

/**
 * @typedef {{kind: "text", id: string, text: string, done: boolean}} TextPart
 * @typedef {{kind: "reasoning", id: string, text: string, done: boolean}} ReasoningPart
 * @typedef {{kind: "tool", id: string, name: string, source: string, arguments: string, output: string,
 *   state: "writing" | "running" | "done" | "failed", tookMs: number | null}} ToolPart
 * @typedef {TextPart | ReasoningPart | ToolPart} Part
 * @typedef {"open" | "done" | "stopped" | "cut" | "failed"} TurnState
 * @typedef {{id: number, question: string, earlier: Part[][], parts: Part[], responseId: string,
 *   state: TurnState, note: string, advice: string}} Turn
 * @typedef {{id: string, title: string, model: string, lastId: string, turns: Turn[], note: string,
 *   reading: "unread" | "reading" | "read", trouble: import("./stream.js").Trouble | null}} Conversation
 */

let count = 0;

/** @returns {Conversation} */
export function newConversation() {
  const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
  return { id, title: "New chat", model: "", lastId: "", turns: [], note: "", reading: "read", trouble: null };
}

/**
 * Make a conversation of which only the row in the list is known; its turns are with the server.
 * @param {import("./memory.js").Row} row
 * @returns {Conversation}
 */
export function knownConversation(row) {
  return { ...newConversation(), ...row, reading: "unread" };
}

/**
 * @param {Conversation} conversation
 * @param {string} question
 * @param {Part[][]} earlier what came of the same question before
 * @returns {Turn}
 */
export function addTurn(conversation, question, earlier) {
  const turn = newTurn(question, earlier);
  if (conversation.turns.length === 0) conversation.title = question.split("\n")[0].slice(0, 60);
  conversation.turns.push(turn);
  return turn;
}

/**
 * @param {string} question
 * @param {Part[][]} earlier
 * @returns {Turn}
 */
function newTurn(question, earlier) {
  return { id: ++count, question, earlier, parts: [], responseId: "", state: "open", note: "", advice: "" };
}

/** States whose response the server keeps and can go on from. */
const KEPT = new Set(["done", "stopped", "cut"]);

/**
 * Name the response that the next question continues.
 * @param {Conversation} conversation
 */
export function lastResponseId(conversation) {
  return conversation.turns.filter((turn) => turn.responseId && KEPT.has(turn.state)).at(-1)?.responseId;
}

/** @param {Turn} turn */
export function answerText(turn) {
  const texts = turn.parts.flatMap((part) => (part.kind === "text" ? [part.text] : []));
  return texts.join("\n\n");
}

/** @param {Part[]} parts */
export function hasContent(parts) {
  return parts.some((part) => part.kind === "tool" || part.text !== "");
}

const ENDINGS = new Set(["response.completed", "response.incomplete", "response.failed", "error"]);
const SERVER_STOPPED = "The answer was cut off: the server stopped.";
const CONNECTION_LOST = "The answer was cut off: the connection was lost.";
const BROKE_OFF = "The answer was cut off.";
const NOT_COMPLETE = "This answer was stopped before it was complete.";

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
  "response.failed": (turn, event) => finish(turn, { ...event.response, status: "failed" }),
  error: (turn, event) => fail(turn, event.message || event.error?.message || BROKE_OFF),
};

/**
 * How a turn ends by the status of its response; a status that is not here is an answer that never ended.
 * @type {Record<string, (turn: Turn, response: any) => void>}
 */
const ENDS = {
  completed: (turn, response) => complete(turn, limitNote(response)),
  incomplete: (turn, response) => complete(turn, incompleteNote(response)),
  cancelled: (turn) => end(turn, "cut", SERVER_STOPPED, retryAdvice(turn)),
  failed: (turn, response) => fail(turn, response.error?.message || BROKE_OFF),
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
  return ENDINGS.has(event.type);
}

/**
 * Rebuild a turn from the response that the server kept.
 * @param {string} question
 * @param {any} response
 */
export function keptTurn(question, response) {
  const turn = newTurn(question, []);
  turn.responseId = response.id;
  for (const item of response.output) {
    addPart(turn, item);
    finishPart(turn, item);
  }
  if (response.status === "cancelled" || !ENDS[response.status]) end(turn, "stopped", NOT_COMPLETE, "");
  else finish(turn, response);
  return turn;
}

/**
 * Say what went wrong; without words of its own the advice is to try again.
 * @param {Turn} turn
 * @param {string} note
 * @param {string} [advice]
 */
export function fail(turn, note, advice) {
  end(turn, "failed", note, advice ?? retryAdvice(turn));
}

/** @param {Turn} turn */
export function lose(turn) {
  fail(turn, CONNECTION_LOST);
}

/** @param {Turn} turn */
export function stop(turn) {
  end(turn, "stopped", "You stopped this answer.", "");
}

/**
 * Note how long each tool ran, by the ids that the calls have in the run's journal.
 * @param {Turn} turn
 * @param {Map<string, number>} tookMs
 */
export function setDurations(turn, tookMs) {
  for (const part of turn.parts) if (part.kind === "tool") part.tookMs = tookMs.get(bareId(part.id)) ?? null;
}

/**
 * Drop the prefix of an id: a call has one in the journal and another in a response.
 * @param {string} id
 */
export function bareId(id) {
  return id.slice(id.indexOf("_") + 1);
}

/** @param {Turn} turn */
function retryAdvice(turn) {
  return hasContent(turn.parts) ? "Try again: what came so far stays, marked as an earlier try." : "Try again.";
}

/**
 * @param {Turn} turn
 * @param {any} response
 */
function finish(turn, response) {
  (ENDS[response.status] ?? lose)(turn, response);
}

/**
 * @param {Turn} turn
 * @param {string} note
 */
function complete(turn, note) {
  end(turn, "done", note, "");
}

/**
 * @param {Turn} turn
 * @param {TurnState} state
 * @param {string} note
 * @param {string} advice
 */
function end(turn, state, note, advice) {
  Object.assign(turn, { state, note, advice });
  for (const part of turn.parts) {
    if (part.kind !== "tool") part.done = true;
    else if (part.state === "writing" || part.state === "running") part.state = "failed";
  }
}

/** @param {any} response */
function limitNote(response) {
  const limit = response.metadata?.treadle_limit;
  return limit ? `A limit of the run was reached (${limit}).` : "";
}

/** @param {any} response */
function incompleteNote(response) {
  const reason = response.incomplete_details?.reason;
  return limitNote(response) || CUT_SHORT[reason] || `The answer is incomplete${reason ? ` (${reason})` : ""}.`;
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
  const base = { id: item.id, name: item.name, source, arguments: item.arguments || "", output: "" };
  return { kind: "tool", ...base, state: "writing", tookMs: null };
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
  if (part?.kind === "tool" && part.state === "writing") part.state = "running";
}

/**
 * @param {Turn} turn
 * @param {any} item
 */
function finishPart(turn, item) {
  const part = find(turn, item.id);
  if (part?.kind === "tool") finishTool(part, item);
  else if (part) {
    part.text ||= wholeText(item);
    part.done = true;
  }
}

/**
 * @param {ToolPart} part
 * @param {any} item
 */
function finishTool(part, item) {
  const error = errorText(item.error);
  part.arguments = item.arguments ?? part.arguments;
  part.output = error ?? item.output ?? "";
  part.state = error === null && item.status !== "failed" && item.status !== "incomplete" ? "done" : "failed";
}

/** @param {any} item a message or a reasoning item that was not streamed */
function wholeText(item) {
  const blocks = [...(item.summary ?? []), ...(item.content ?? [])];
  return blocks.map((block) => block.text ?? block.refusal ?? "").join("\n\n");
}

/** @param {any} error */
function errorText(error) {
  if (error === null || error === undefined) return null;
  if (typeof error === "string") return error;
  const content = error.content ?? error.message;
  if (Array.isArray(content)) return content.map((block) => block.text ?? JSON.stringify(block)).join("\n");
  return typeof content === "string" ? content : JSON.stringify(content ?? error);
}
