// @ts-check
// Talks to the server: one request, its answer as a stream of events. Knows nothing of what is shown.

/** What went wrong, in words for a person, with what to do about it. */
export class Trouble extends Error {
  /**
   * @param {string} message
   * @param {string} advice
   * @param {number} status of the server's answer; 0 when there was none
   */
  constructor(message, advice, status = 0) {
    super(message);
    this.advice = advice;
    this.status = status;
  }
}

const UNREACHABLE = "Check that the server is still running, then try again.";

/** @type {Record<number, string>} */
const ADVICE = {
  400: "The request was not understood. Try to word it differently, or start a new chat.",
  403: "Open this page by the address that the server printed when it started.",
  404: "Choose another model, or start a new chat.",
  413: "The message is too long. Send less at once.",
  429: "The model is busy. Wait a moment, then try again.",
  502: "The model's provider failed. Check its key and address with treadle doctor.",
  503: "The server is busy or restarting. Try again in a moment.",
  504: "The model's provider did not answer in time. Try again.",
};

/**
 * Fetch a JSON document.
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function getJson(path) {
  const answer = await request(path, { headers: { accept: "application/json" } });
  return answer.json();
}

/**
 * Ask for a response and yield the events of its stream.
 * @param {{model: string, input: string, previous_response_id?: string}} body
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* ask(body, signal) {
  const answer = await request("/v1/responses", {
    method: "POST",
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  if (!answer.body) throw new Trouble("The server sent no answer.", UNREACHABLE);
  yield* readEvents(answer.body);
}

/**
 * Split a byte stream into the JSON of its server-sent events.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {AsyncGenerator<any, void, void>}
 */
export async function* readEvents(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += decoder.decode(value, { stream: !done });
      const frames = rest.split("\n\n");
      rest = frames.pop() ?? "";
      for (const frame of frames) {
        const event = readFrame(frame);
        if (event) yield event;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {string} frame */
function readFrame(frame) {
  const lines = frame.split("\n").filter((line) => line.startsWith("data:"));
  const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
  return data && data !== "[DONE]" ? JSON.parse(data) : null;
}

/**
 * @param {string} path
 * @param {RequestInit} options
 */
async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Trouble("The server cannot be reached.", UNREACHABLE);
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => null);
  const message = said?.error?.message || `The server answered with status ${answer.status}.`;
  // The envelope has no place for a hint, so the server writes it behind the message; ours would only contradict it.
  const advice = sentences(message).length > 1 ? "" : ADVICE[answer.status] || "Try again.";
  throw new Trouble(message, advice, answer.status);
}

/**
 * Split what happened from what to do about it: at the end of the first sentence, if another one follows.
 * @param {string} text
 * @returns {string[]} one or two lines
 */
export function sentences(text) {
  const end = text.search(/(?<=[.!?])\s+(?=[A-Z"'`(])/);
  return end < 0 ? [text] : [text.slice(0, end), text.slice(end).trimStart()];
}
