// The Vercel AI SDK: its Responses provider (which sends item references) and its OpenAI-compatible Chat provider.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.env.TREADLE_URL;
const providers = {
  responses: createOpenAI({ baseURL, apiKey: "unused" }),
  chat: createOpenAICompatible({ baseURL, apiKey: "unused", name: "treadle" }),
};
const tools = {
  book_table: tool({
    description: "Book a table.",
    inputSchema: z.object({ seats: z.number().int() }),
    execute: async ({ seats }) => `booked ${seats}`,
  }),
};
const report = {};

for (const [name, provider] of Object.entries(providers)) {
  const asked = { maxRetries: 0, stopWhen: stepCountIs(4) };
  const server = streamText({ ...asked, model: provider("server"), prompt: "What is the weather in Paris?" });
  report[`${name}_server`] = await server.text;
  const client = streamText({ ...asked, model: provider("client"), prompt: "Book a table.", tools });
  report[`${name}_client`] = await client.text;
  const whole = await generateText({ ...asked, model: provider("client"), prompt: "Book a table.", tools });
  report[`${name}_whole`] = whole.text;
}

console.log(JSON.stringify(report));
