// The Anthropic SDK for Node: its tool runner, whose later requests hold only what is new, streamed and whole.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const client = new Anthropic({ baseURL: process.env.TREADLE_URL, apiKey: "unused", maxRetries: 0 });
const book_table = betaTool({
  name: "book_table",
  description: "Book a table.",
  inputSchema: { type: "object", properties: { seats: { type: "integer" } }, required: ["seats"] },
  run: ({ seats }) => `booked for ${seats}: ${process.env.TREADLE_PROOF}`,
});
const said = {};

for (const stream of [true, false]) {
  const runner = client.beta.messages.toolRunner({
    model: "demo",
    max_tokens: 1000,
    messages: [{ role: "user", content: "What is the weather in Paris? Book a table for two." }],
    tools: [book_table],
    stream,
  });
  const message = await runner.runUntilDone();
  said[`messages_${stream ? "streamed" : "whole"}`] = message.content.at(-1).text;
}

console.log(JSON.stringify(said));
