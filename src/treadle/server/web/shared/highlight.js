// @ts-check
// Colours for code. Loaded with the first block that names its language, and a grammar with its first use. Gives
// nodes, never HTML: the highlighter's own tree is walked, not its markup.

import hljs from "../vendor/highlight/core.js";

const CHARS_MAX = 20_000;

/**
 * The grammar of each name that models write behind a fence. TypeScript's reads JavaScript too.
 * @type {Record<string, string>}
 */
const GRAMMARS = {
  ...named("bash", "sh", "shell", "zsh", "console"),
  ...named("diff", "patch"),
  ...named("go", "golang"),
  ...named("java"),
  ...named("json", "jsonc", "json5"),
  ...named("python", "py", "python3"),
  ...named("rust", "rs"),
  ...named("sql", "sqlite", "postgresql"),
  ...named("typescript", "ts", "tsx", "javascript", "js", "jsx", "mjs"),
  ...named("xml", "html", "svg", "xhtml"),
  ...named("yaml", "yml"),
};

/**
 * Colour the text of an element, if its language is known and it is not too long.
 * @param {HTMLElement} body
 * @param {string} language
 */
export async function highlight(body, language) {
  const name = GRAMMARS[language.toLowerCase()];
  const code = body.textContent ?? "";
  if (!name || code.length > CHARS_MAX) return;
  if (!hljs.getLanguage(name)) {
    const grammar = await import(`../vendor/highlight/${name}.js`);
    hljs.registerLanguage(name, grammar.default);
  }
  const result = hljs.highlight(code, { language: name, ignoreIllegals: true });
  body.replaceChildren(...result._emitter.rootNode.children.map(nodeOf));
}

/**
 * @param {string | {scope: string, children: any[]}} token
 * @returns {Node}
 */
function nodeOf(token) {
  if (typeof token === "string") return document.createTextNode(token);
  const node = document.createElement("span");
  node.className = `t-${token.scope?.split(".")[0]}`;
  node.append(...token.children.map(nodeOf));
  return node;
}

/** @param {string[]} names */
function named(...names) {
  return Object.fromEntries(names.map((name) => [name, names[0]]));
}
