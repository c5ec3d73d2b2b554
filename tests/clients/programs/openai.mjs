// The openai SDK for Node: Chat and Responses, streamed and whole, and its own tool runner.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.TREADLE_URL}/v1`, apiKey: "unused", maxRetries: 0 });
const question = "What is the weather in Paris? Book a table for two.";
const parameters = { type: "object", properties: { seats: { type: "integer" } }, required: ["seats"] };
const book = ({ seats }) => `booked for ${seats}: ${process.env.TREADLE_PROOF}`;
const said = {};

for (const stream of [true, false]) {
  const runner = client.chat.completions.runTools({
    model: "demo",
    messages: [{ role: "user", content: question }],
    stream,
    tools: [{ type: "function", function: { name: "book_table", parameters, parse: JSON.parse, function: book } }],
  });
  said[`chat_${stream ? "streamed" : "whole"}`] = await runner.finalContent();
}

const tools = [{ type: "function", name: "book_table", parameters, strict: false }];
const ask = {
  whole: (body) => client.responses.create(body),
  streamed: (body) => client.responses.stream(body).finalResponse(),
};
for (const [name, respond] of Object.entries(ask)) {
  let response = await respond({ model: "demo", tools, input: question });
  const calls = response.output.filter((item) => item.type === "function_call");
  const input = calls.map(({ call_id, arguments: json }) => ({
    type: "function_call_output",
    call_id,
    output: book(JSON.parse(json)),
  }));
  response = await respond({ model: "demo", tools, input, previous_response_id: response.id });
  said[`responses_${name}`] = response.output_text;
}

console.log(JSON.stringify(said));
