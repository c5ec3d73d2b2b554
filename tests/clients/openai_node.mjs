// The openai SDK for Node: Chat and Responses, streamed and whole, with a server tool and a tool of its own.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.TREADLE_URL, apiKey: "unused", maxRetries: 0 });
const question = "What is the weather in Paris?";
const parameters = { type: "object", properties: { seats: { type: "integer" } }, required: ["seats"] };
const report = {};

const chat = await client.chat.completions.create({ model: "server", messages: [{ role: "user", content: question }] });
report.chat_whole = chat.choices[0].message.content;

const streamed = client.chat.completions.stream({ model: "server", messages: [{ role: "user", content: question }] });
report.chat_stream = (await streamed.finalChatCompletion()).choices[0].message.content;

const types = [];
const responses = client.responses.stream({ model: "server", input: question });
for await (const event of responses) types.push(event.type);
const final = await responses.finalResponse();
report.responses_stream = final.output_text;
report.responses_items = final.output.map((item) => item.type);
report.responses_ends = [types[0], types.at(-1)];

const runner = client.chat.completions.runTools({
  model: "client",
  messages: [{ role: "user", content: "Book a table." }],
  stream: true,
  tools: [
    {
      type: "function",
      function: { name: "book_table", parameters, parse: JSON.parse, function: ({ seats }) => `booked ${seats}` },
    },
  ],
});
report.run_tools = await runner.finalContent();

console.log(JSON.stringify(report));
