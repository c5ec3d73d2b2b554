// The Google Gen AI SDK for Node: a chat that keeps its own history, streamed and whole.
import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({ apiKey: "unused", httpOptions: { baseUrl: process.env.TREADLE_URL } });
const parametersJsonSchema = { type: "object", properties: { seats: { type: "integer" } }, required: ["seats"] };
const config = { tools: [{ functionDeclarations: [{ name: "book_table", parametersJsonSchema }] }] };
const said = {};

const send = {
  whole: async (chat, message) => {
    const answer = await chat.sendMessage({ message });
    return { calls: answer.functionCalls ?? [], text: answer.functionCalls ? "" : answer.text };
  },
  streamed: async (chat, message) => {
    const calls = [];
    let text = "";
    for await (const chunk of await chat.sendMessageStream({ message })) {
      calls.push(...(chunk.functionCalls ?? []));
      for (const part of chunk.candidates?.[0]?.content?.parts ?? []) text += part.text ?? "";
    }
    return { calls, text };
  },
};
for (const [name, ask] of Object.entries(send)) {
  const chat = client.chats.create({ model: "demo", config });
  let answer = await ask(chat, "What is the weather in Paris? Book a table for two.");
  const results = answer.calls.map(({ id, name: called, args }) => ({
    functionResponse: { id, name: called, response: { output: `booked for ${args.seats}: ${process.env.TREADLE_PROOF}` } },
  }));
  answer = await ask(chat, results);
  said[`gemini_${name}`] = answer.text;
}

console.log(JSON.stringify(said));
