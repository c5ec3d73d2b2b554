// @ts-check
// What the server has kept of a conversation, read back from its last response to its first.

import { bareId, keptTurn, setDurations } from "./conversation.js";
import { getJson, Trouble } from "./stream.js";

/** @typedef {import("./conversation.js").Turn} Turn */

const TURNS_MAX = 100;

/**
 * Read the turns that end in this response.
 * @param {string} lastId
 * @returns {Promise<{turns: Turn[], isWhole: boolean}>} not whole: the beginning is gone, or too long ago
 */
export async function readTurns(lastId) {
  /** @type {Turn[]} */
  const turns = [];
  let id = lastId;
  while (id && turns.length < TURNS_MAX) {
    const kept = await readTurn(id);
    if (!kept) return { turns, isWhole: false };
    turns.unshift(kept.turn);
    id = kept.previousId;
  }
  return { turns, isWhole: !id };
}

/**
 * Ask the run's journal how long its tools took: a stream shows calls one after the other that ran side by side.
 * @param {Turn} turn
 */
export async function readDurations(turn) {
  if (!turn.responseId || !turn.parts.some((part) => part.kind === "tool")) return;
  try {
    const run = await getJson(`/treadle/v1/runs/${turn.responseId}`);
    setDurations(turn, durations(run.entries));
  } catch {
    // A card without its duration is whole.
  }
}

/** @param {string} id */
async function readTurn(id) {
  const path = `/v1/responses/${encodeURIComponent(id)}`;
  try {
    const [response, run] = await Promise.all([getJson(path), getJson(`/treadle/v1/runs/${encodeURIComponent(id)}`)]);
    const turn = keptTurn(questionOf(run.entries), response);
    setDurations(turn, durations(run.entries));
    return { turn, previousId: response.previous_response_id ?? "" };
  } catch (error) {
    if (error instanceof Trouble && error.status === 404) return null;
    throw error;
  }
}

/**
 * Return what this run was asked with; what came before is another run's.
 * @param {any[]} entries
 */
function questionOf(entries) {
  const asked = entries.filter((entry) => entry.is_input && entry.kind === "user");
  return asked.map((entry) => entry.content ?? "").join("\n");
}

/**
 * @param {any[]} entries
 * @returns {Map<string, number>}
 */
function durations(entries) {
  const calls = new Map();
  const tookMs = new Map();
  for (const entry of entries) {
    if (entry.kind === "tool_call") calls.set(entry.call_id, bareId(entry.item_id));
    else if (entry.kind === "tool_result") tookMs.set(calls.get(entry.call_id), entry.data.duration_s * 1000);
  }
  return tookMs;
}
