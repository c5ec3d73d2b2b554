// @ts-check
// Keys: who may use this server, for what, how much of it, and what each has used. A key is shown once, when it is made.

import { asTrouble, send } from "../shared/api.js";
import { Copy, count, html, money, typed, useState } from "../shared/ui.js";
import { address } from "./address.js";
import { More, usePages } from "./lists.js";
import { Choice, clock, Confirm, Facts, Loading, State, Table } from "./parts.js";

const PATH = "/treadle/v1/keys";
/** @type {[string, string][]} */
const PERIODS = [["day", "today"], ["month", "this month"], ["total", "in all"]];

/** All keys, newest first. */
export function Keys() {
  const pages = usePages(PATH, "keys");
  const [asks, setAsks] = useState(/** @type {any} */ (null));
  const [made, setMade] = useState(/** @type {any} */ (null));
  const [trouble, setTrouble] = useState(/** @type {any} */ (null));
  const { rows, isLoading } = pages;
  const ask = (/** @type {any} */ what) => {
    setTrouble(null);
    setAsks(what);
  };
  const act = async (/** @type {() => Promise<any>} */ work) => {
    try {
      setMade(await work());
      ask(null);
    } catch (error) {
      setTrouble(asTrouble(error));
    }
    pages.refresh();
  };
  const revoke = (/** @type {any} */ row) => act(async () => {
    await send("DELETE", `${PATH}/${encodeURIComponent(row.id)}`, {});
    return null;
  });
  return html`<section class="view page" aria-label="Keys"><h2>Keys</h2>
    <${Loading} of=${{ data: rows.length > 0 || !isLoading ? rows : null, trouble: pages.trouble, reload: pages.refresh }} label="Reading the keys">
      <div class="row actions"><button type="button" class="box" onClick=${() => ask("new")}>Make a key…</button></div>
      ${made && html`<div class="asked" role="status"><p>This is the key <b>${made.name}</b>. It is shown only now.</p><p class="line"><code>${made.key}</code></p><${Copy} text=${() => made.key} label="Copy the key" /></div>`}
      ${rows.length === 0 && html`<p class="nothing">There are no keys. A program needs one to decide and to change things, and to ask models where other machines can reach this server.</p>`}
      ${rows.map((/** @type {any} */ row) => html`<${Key} key=${row.id} row=${row} onRevoke=${() => ask(row)} />`)}
      <${More} of=${pages} words="Older keys" />
    <//>
    ${asks === "new" && html`<${NewKey} trouble=${trouble} onDo=${(/** @type {any} */ body) => act(() => send("POST", PATH, body))} onClose=${() => ask(null)} />`}
    ${asks?.id && html`<${Confirm} title=${`Revoke the key ${asks.name}?`} verb="Revoke" trouble=${trouble} onDo=${() => revoke(asks)} onClose=${() => ask(null)}>
      <p>Whoever uses it is refused from now on, for ever, and its runs are cancelled. What it did stays.</p><//>`}
  </section>`;
}

/** @param {{row: any, onRevoke: () => void}} props */
function Key({ row, onRevoke }) {
  const { rates, budget, used } = row;
  const limits = [rates.requests_per_min && `${count(rates.requests_per_min)} requests a minute`, rates.tokens_per_min && `${count(rates.tokens_per_min)} tokens a minute`, rates.runs_max && `${rates.runs_max} runs at once`];
  const bounds = [budget.tokens && `${count(budget.tokens)} tokens`, budget.usd && money(budget.usd)].filter(Boolean);
  const patterns = (/** @type {string[]} */ list) => (list.join() === "*" ? "all" : list.join(", ") || "none");
  return html`<article class="card" aria-label=${`Key ${row.name}`}>
    <header><h3>${row.name} <${State} of=${row.state} mood=${row.state === "active" ? "good" : "bad"} /></h3><p class="small">${row.id} · made ${clock(row.created_at)} · <a href=${address(["runs"], { key: row.id })}>its runs</a></p></header>
    <${Facts} rows=${[
      ["APIs", patterns(row.apis)], ["Models", patterns(row.models)], ["Tools", patterns(row.tools)], ["Role", row.role],
      ["Limits", limits.filter(Boolean).join(", ") || "none"],
      ["Budget", bounds.length > 0 ? `${bounds.join(" or ")} ${budget.period === "total" || !budget.period ? "in all" : `a ${budget.period}`}` : "none"],
      ["Expires", row.expires_at ? clock(row.expires_at) : "never"], ["Revoked", row.revoked_at ? clock(row.revoked_at) : ""],
    ]} />
    ${share(row) !== null && html`<label class="stack"><span>Used of the budget</span><progress max="1" value=${share(row)}></progress></label>`}
    <${Table} label=${`What ${row.name} has used`} names=${["Used", "Runs", "Tokens in", "Tokens out", "Cost"]}
      rows=${PERIODS.map(([name, words]) => [words, count(used[name].runs), count(used[name].input_tokens), count(used[name].output_tokens), money(used[name].usd)])} />
    ${row.state === "active" && html`<div class="row"><button type="button" class="box" onClick=${onRevoke}>Revoke…</button></div>`}
  </article>`;
}

/** Return how much of its budget a key has used, from 0 to 1; null without one. @param {any} row */
function share({ budget, used }) {
  const spent = used[budget.period ?? "total"] ?? used.total;
  const shares = [budget.tokens && (spent.input_tokens + spent.output_tokens) / budget.tokens, budget.usd && spent.usd / budget.usd].filter(Boolean);
  return budget.tokens || budget.usd ? Math.min(1, Math.max(0, ...shares)) : null;
}

/** @param {{onDo: (body: any) => void, onClose: () => void, trouble: any}} props */
function NewKey({ onDo, onClose, trouble }) {
  const [wish, setWish] = useState({ name: "", models: "*", tools: "*", role: "none", days: "", usd: "", period: "month" });
  const put = (/** @type {string} */ name) => (/** @type {string} */ value) => setWish((old) => ({ ...old, [name]: value }));
  const list = (/** @type {string} */ text) => text.split(",").map((one) => one.trim()).filter(Boolean);
  const make = () => onDo({
    name: wish.name.trim(), models: list(wish.models), tools: list(wish.tools), role: wish.role,
    ...(wish.days && { expires_s: Number(wish.days) * 86_400 }), ...(wish.usd && { budget: { usd: Number(wish.usd), period: wish.period } }),
  });
  const field = (/** @type {"name" | "models" | "tools" | "days" | "usd"} */ name, /** @type {string} */ words, /** @type {string} */ hint = "") => html`<label><span>${words}</span>
    <input type="text" value=${wish[name]} placeholder=${hint} required=${name === "name"} inputmode=${hint ? "decimal" : "text"} autocomplete="off" onInput=${typed(put(name))} /></label>`;
  const choice = (/** @type {"role" | "period"} */ name, /** @type {string} */ words, /** @type {string[]} */ values) => html`<${Choice} label=${words} value=${wish[name]} options=${values} onChoose=${put(name)} />`;
  return html`<${Confirm} title="Make a key" verb="Make it" trouble=${trouble} onDo=${make} onClose=${onClose}>
    ${field("name", "Name")}${field("models", "Models, as patterns with commas between")}${field("tools", "Tools, likewise")}
    ${choice("role", "Role in the console", ["none", "viewer", "operator", "admin"])}
    ${field("days", "Days until it expires", "never")}${field("usd", "Budget in US dollars", "none")}${choice("period", "Budget for each", ["day", "month", "total"])}
  <//>`;
}
