// @ts-check
// Questions to begin with, chosen by the tools that are there. Promises nothing that this server cannot do.

const COUNT = 4;
const ABOUT = "What can you do here?";

/**
 * What a tool of this name is asked, if it also takes these parameters: a name alone says little.
 * @type {Record<string, {takes: string[], question: string}>}
 */
const KNOWN = {
  get_weather: { takes: ["city"], question: "What is the weather in Paris?" },
  add: { takes: ["a", "b"], question: "Add 12.5 and 30" },
  convert: { takes: ["value", "from_unit", "to_unit"], question: "Convert 26.2 miles to kilometres" },
};

const GENERAL = [
  "Explain recursion in three sentences",
  "Write a Python function that finds duplicates in a list",
  "Compare tea and coffee in a small table",
];

/**
 * Choose the questions. The demo model knows its tools and nothing else, so general ones are not for it.
 * @param {any[]} tools as /treadle/v1/tools lists them
 * @param {string} model
 */
export function examples(tools, model) {
  const specs = tools.map((tool) => tool.spec);
  const names = specs.filter(isKnown).map((spec) => spec.name);
  const known = Object.keys(KNOWN).filter((name) => names.includes(name)).map((name) => KNOWN[name].question);
  const others = specs.filter((spec) => !isKnown(spec)).map((spec) => `Show me what ${spec.name} can do`);
  const general = model === "demo" ? [] : GENERAL;
  const chosen = [...known.slice(0, COUNT - 1), ...others.slice(0, 2), ...general].slice(0, COUNT - 1);
  return [...chosen, ABOUT];
}

/** @param {any} spec */
function isKnown({ name, parameters }) {
  const properties = parameters?.properties ?? {};
  return Object.hasOwn(KNOWN, name) && KNOWN[name].takes.every((parameter) => Object.hasOwn(properties, parameter));
}
