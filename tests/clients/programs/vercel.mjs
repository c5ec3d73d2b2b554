// The Vercel AI SDK: its providers for all four APIs, streamed and whole, over several steps.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogle } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const root = process.env.TREADLE_URL;
const apiKey = "unused";
const providers = {
  chat: createOpenAICompatible({ baseURL: `${root}/v1`, apiKey, name: "treadle" }),
  responses: createOpenAI({ baseURL: `${root}/v1`, apiKey }),
  messages: createAnthropic({ baseURL: `${root}/v1`, apiKey }),
  gemini: createGoogle({ baseURL: `${root}/v1beta`, apiKey }),
};
const book_table = tool({
  description: "Book a table.",
  inputSchema: z.object({ seats: z.number().int() }),
  execute: async ({ seats }) => `booked for ${seats}: ${process.env.TREADLE_PROOF}`,
});
const said = {};

for (const [name, provider] of Object.entries(providers)) {
  const asked = {
    model: provider("demo"),
    prompt: "What is the weather in Paris? Book a table for two.",
    tools: { book_table },
    maxRetries: 0,
    stopWhen: stepCountIs(4),
  };
  said[`${name}_whole`] = (await generateText(asked)).text;
  const stream = streamText(asked);
  said[`${name}_streamed`] = await stream.text;
  if ((await stream.finishReason) !== "stop") throw new Error(`${name} ended with ${await stream.finishReason}`);
}

console.log(JSON.stringify(said));
