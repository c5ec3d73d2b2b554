// @ts-check
// Markdown to DOM nodes, block by block. No HTML is ever parsed: what looks like HTML is shown as text, an image
// becomes a link, and a link is one only if it leads to the web or to mail.

import { lexer } from "../vendor/marked.js";

/** @typedef {{type: string, raw: string}} Token */

const SAFE = new Set(["http:", "https:", "mailto:"]);

/** Renders a growing text: a finished block once, the open one again with each update, open code line by line. */
export class MarkdownView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.text = "";
    this.closed = 0;
    /** @type {string[]} the sources of the finished blocks */
    this.sources = [];
    /** @type {ChildNode[]} */
    this.open = [];
    /** @type {{end: RegExp, body: Text, from: number} | null} the code that is being written */
    this.code = null;
  }

  clear() {
    this.root.replaceChildren();
    Object.assign(this, { text: "", closed: 0, sources: [], open: [], code: null });
  }

  /**
   * Show the text. What was shown before is most often its beginning, and stays.
   * @param {string} given
   */
  update(given) {
    const text = given.replaceAll("\r", "");
    if (text === this.text) return;
    if (!text.startsWith(this.text)) this.clear();
    this.text = text;
    if (this.code && this.growCode(this.code)) return;
    const tokens = lexer(text.slice(this.closed));
    const last = tokens.findLastIndex((token) => token.type !== "space");
    for (const node of this.open) node.remove();
    for (const token of tokens.slice(0, Math.max(last, 0))) {
      const nodes = blocks([token]);
      this.root.append(...nodes);
      colourLater(nodes);
      this.closed += token.raw.length;
      if (token.type !== "space") this.sources.push(token.raw);
    }
    this.open = blocks(tokens.slice(Math.max(last, 0)));
    this.root.append(...this.open);
    this.code = this.openCode(tokens[last]);
  }

  /**
   * Return where code goes on that is being written, if nothing stands before its fence.
   * @param {any} token
   */
  openCode(token) {
    const [head, fence] = (token?.type === "code" && /^(`{3,}|~{3,})[^\n]*\n/.exec(token.raw)) || [""];
    const body = this.open[0] instanceof HTMLElement && this.open[0].querySelector("code")?.firstChild;
    if (!head || !(body instanceof Text)) return null;
    const end = new RegExp(`\\n {0,3}${fence}`);
    return end.test(token.raw.slice(head.length - 1)) ? null : { end, body, from: this.closed + head.length };
  }

  /**
   * Add to code what has come; false when its end may have come too.
   * @param {{end: RegExp, body: Text, from: number}} code
   */
  growCode({ end, body, from }) {
    const whole = this.text.slice(from);
    if (end.test(this.text.slice(from - 1 + Math.max(0, body.length - 8)))) {
      this.code = null;
      return false;
    }
    const fresh = whole.replace(/\n$/, "").slice(body.length);
    if (fresh) body.appendData(fresh);
    return true;
  }

  /**
   * Take the open block for finished too: no more text will come. Where the whole reads otherwise than its pieces did
   * (a list that went on after a pause, an address that was given at the end) it is shown anew, once.
   */
  finish() {
    const tokens = lexer(this.text).filter((token) => token.type !== "space");
    const isSame = tokens.slice(0, -1).every((token, n) => token.raw === this.sources[n] && token.type !== "def");
    if (!isSame || tokens.length > this.sources.length + 1 || tokens.at(-1)?.type === "def") {
      this.root.replaceChildren(...blocks(tokens));
      this.open = [...this.root.childNodes];
    }
    colourLater(this.open);
  }
}

/**
 * Colour the code in finished blocks, when there is nothing better to do.
 * @param {ChildNode[]} nodes
 */
function colourLater(nodes) {
  for (const node of nodes) {
    if (!(node instanceof HTMLElement)) continue;
    /** @type {NodeListOf<HTMLElement>} */
    const bodies = node.querySelectorAll("code[data-language]");
    for (const body of bodies) whenIdle(() => colour(body));
  }
}

/** @param {HTMLElement} body */
async function colour(body) {
  const { highlight } = await import("./highlight.js");
  await highlight(body, body.dataset.language ?? "");
}

/** @param {() => Promise<void>} task whose failure leaves the page as it was */
function whenIdle(task) {
  const run = () => task().catch(() => {});
  if ("requestIdleCallback" in globalThis) requestIdleCallback(run, { timeout: 500 });
  else setTimeout(run, 50);
}

/**
 * @param {Token[]} tokens
 * @returns {ChildNode[]}
 */
function blocks(tokens) {
  return tokens.flatMap((token) => BLOCKS[token.type]?.(token) ?? []);
}

/** @type {Record<string, (token: any) => ChildNode[]>} */
const BLOCKS = {
  paragraph: (token) => [element("p", inlines(token.tokens))],
  text: (token) => (token.tokens ? inlines(token.tokens) : [text(token.text)]),
  heading: (token) => [element(`h${Math.min(token.depth + 2, 6)}`, inlines(token.tokens))],
  blockquote: (token) => [element("blockquote", blocks(token.tokens))],
  hr: () => [element("hr")],
  html: (token) => [element("p", [document.createTextNode(token.raw.trimEnd())])],
  code: (token) => [codeBlock(token.text, token.lang || "")],
  list: (token) => [list(token)],
  table: (token) => [table(token)],
  checkbox: (token) => [checkbox(token.checked)],
};

/**
 * @param {Token[]} tokens
 * @returns {ChildNode[]}
 */
function inlines(tokens) {
  return tokens.flatMap((token) => INLINES[token.type]?.(token) ?? [text(token.raw)]);
}

/** @type {Record<string, (token: any) => ChildNode[]>} */
const INLINES = {
  text: (token) => (token.tokens ? inlines(token.tokens) : [text(token.text)]),
  escape: (token) => [document.createTextNode(token.text)],
  html: (token) => [document.createTextNode(token.raw)],
  strong: (token) => [element("strong", inlines(token.tokens))],
  em: (token) => [element("em", inlines(token.tokens))],
  del: (token) => [element("del", inlines(token.tokens))],
  codespan: (token) => [element("code", [document.createTextNode(token.text)])],
  br: () => [element("br")],
  link: (token) => link(token.href, inlines(token.tokens)),
  image: (token) => link(token.href, [text(`Image: ${token.text || token.href}`)]),
  checkbox: (token) => [checkbox(token.checked)],
};

/**
 * @param {string} href
 * @param {ChildNode[]} children
 * @returns {ChildNode[]}
 */
function link(href, children) {
  if (!isSafe(href)) return children;
  return [Object.assign(element("a", children), { href, target: "_blank", rel: "noopener noreferrer nofollow", title: href })];
}

/** @param {string} href */
export function isSafe(href) {
  return URL.canParse(href) && SAFE.has(new URL(href).protocol);
}

/**
 * @param {string} code
 * @param {string} info
 */
function codeBlock(code, info) {
  const language = info.split(/\s/)[0];
  const name = element("span", [document.createTextNode(language || "text")]);
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
  const body = element("code", [document.createTextNode(code)]);
  if (language) body.dataset.language = language;
  button.addEventListener("click", () => copy(button, body));
  const pre = Object.assign(element("pre", [body]), { tabIndex: 0 });
  return Object.assign(element("figure", [element("figcaption", [name, button]), pre]), { className: "code" });
}

/**
 * @param {HTMLButtonElement} button
 * @param {HTMLElement} body
 */
async function copy(button, body) {
  try {
    await navigator.clipboard.writeText(body.textContent ?? "");
    button.textContent = "Copied";
  } catch {
    getSelection()?.selectAllChildren(body);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

/** @param {any} token */
function list(token) {
  const node = element(token.ordered ? "ol" : "ul", token.items.map(listItem));
  if (token.ordered && token.start !== 1) Object.assign(node, { start: token.start });
  return node;
}

/** @param {any} item */
function listItem(item) {
  const node = element("li", blocks(item.tokens));
  if (item.task) node.className = "task";
  return node;
}

/**
 * A sign, not a control: nothing here can be ticked.
 * @param {boolean} checked
 */
function checkbox(checked) {
  const box = element("span", [document.createTextNode(checked ? "✓" : "")]);
  box.dataset.checked = String(checked);
  return Object.assign(box, { className: "check", role: "img", ariaLabel: checked ? "done" : "not done" });
}

/** @param {any} token */
function table(token) {
  const row = (/** @type {any[]} */ cells, /** @type {string} */ tag) =>
    element("tr", cells.map((cell, column) => aligned(element(tag, inlines(cell.tokens)), token.align[column])));
  const head = element("thead", [row(token.header, "th")]);
  const body = element("tbody", token.rows.map((/** @type {any[]} */ cells) => row(cells, "td")));
  return Object.assign(element("div", [element("table", [head, body])]), { className: "table" });
}

/**
 * @param {HTMLElement} cell
 * @param {string | null} align
 */
function aligned(cell, align) {
  if (align) cell.className = `align-${align}`;
  return cell;
}

/**
 * @param {string} tag
 * @param {ChildNode[]} children
 */
function element(tag, children = []) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

/** @type {Record<string, string>} */
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—" };

/** @param {string} source */
function text(source) {
  return document.createTextNode(source.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]+));/gi, entity));
}

/**
 * @param {string} whole
 * @param {string | undefined} decimal
 * @param {string | undefined} hex
 * @param {string | undefined} name
 */
function entity(whole, decimal, hex, name) {
  if (name) return ENTITIES[name] ?? whole;
  const code = decimal ? Number(decimal) : parseInt(hex ?? "", 16);
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
}
