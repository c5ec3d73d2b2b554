// The loop of Vercel's `ai`: generateText with a tool, over chat completions. A line in names a model, a line out says
// how long its run took.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, folder] = process.argv.slice(2);
const find = createRequire(pathToFileURL(`${folder}/`));
const load = (name) => import(pathToFileURL(find.resolve(name)));
const { generateText, stepCountIs, tool } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { z } = await load("zod");

const provider = createOpenAICompatible({ name: "bench", baseURL: url, apiKey: "none" });
const tools = {
  bench_add: tool({
    description: "Add two numbers.",
    inputSchema: z.object({ a: z.number(), b: z.number() }),
    execute: async ({ a, b }) => a + b,
  }),
};

console.log("ready");
for await (const model of createInterface({ input: process.stdin })) {
  if (!model) break;
  const began = performance.now();
  const { text } = await generateText({
    model: provider(model),
    tools,
    stopWhen: stepCountIs(2000),
    prompt: "go",
  });
  if (!text.includes("bench-done")) {
    console.error(`${model}: answered ${text.slice(0, 200)}`);
    process.exit(1);
  }
  console.log((performance.now() - began) / 1000);
}
