// A tool guest in JavaScript, as a component: every call gets a fresh instance. Its world is in treadle_tool.wit.
//
//   npm install componentize-qjs
//   treadle wasm build words.js
import { log } from "treadle:tool/host@1.0.0";

const TOOLS = [
  {
    name: "count_words",
    description: "Count the words of a text.",
    parameters: {
      type: "object",
      properties: { text: { type: "string" } },
      required: ["text"],
      additionalProperties: false,
    },
  },
];

export function describe() {
  return JSON.stringify(TOOLS);
}

// What is thrown is the error that the model reads.
export function call(name, args) {
  if (name !== "count_words") throw `There is no tool ${name}.`;
  const words = JSON.parse(args).text.split(/\s+/).filter(Boolean).length;
  log(`counted ${words} words`);
  return JSON.stringify({ words });
}
