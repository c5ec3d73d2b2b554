// @ts-check
// What waits for a person: calls that ask before they run, and proposals to change facts. A card shows what would
// happen and why; a decision stands once, and whoever comes second is told what stands.

import { asTrouble, send, Trouble } from "../shared/api.js";
import { ago, announce, duration, html, Note, onKeys, pretty, typed, useClock, useEffect, useLayoutEffect, useRef, useState } from "../shared/ui.js";
import { address } from "./address.js";
import { More, usePages } from "./lists.js";
import { Arguments, Choice, clock, Facts, Loading, Pane, shortId, shown, State, Table, useChanges, useLoaded, useMe } from "./parts.js";

/** @typedef {import("./address.js").Place} Place */

const CARDS = 100;
/** The most that one answer lists. */
const DECIDED = 200;

/** @param {{place: Place}} props */
export function Approvals({ place }) {
  const path = "/treadle/v1/approvals";
  const waiting = useLoaded(`${path}?status=pending&limit=${CARDS}`);
  const past = usePages(path, "approvals");
  const rules = useLoaded(`${path}/rules`);
  const one = useLoaded(place.id && `${path}/${encodeURIComponent(place.id)}`);
  const reload = () => [waiting.reload, past.refresh, rules.reload, one.reload].forEach((again) => again());
  useChanges(["approval"], reload);
  const rows = waiting.data?.approvals ?? [];
  const isListed = rows.some((/** @type {any} */ row) => row.id === place.id);
  return html`<section class="view page" aria-label="Approvals">
    <h2>Waiting for a person</h2>
    <${Loading} of=${waiting} label="Reading the approvals">
      <${Cards} rows=${one.data && !isListed ? [one.data, ...rows] : rows} marked=${place.id} empty="Nothing waits. A call that needs a person will be shown here at once."
        card=${(/** @type {any} */ row) => html`<${CallCard} key=${row.id} row=${row} onDecided=${reload} />`} />
    <//>
    <${Past} names=${["State", "Tool", "By", "When", "Run"]} rows=${past.rows.filter((row) => row.status !== "pending").map((row) => [
      html`<${State} of=${row.status} />`, html`<a href=${address(["approvals", row.id])}><code>${row.tool}</code></a>`, row.decision?.by || "–",
      clock(row.decision?.at ?? row.expires_at), html`<a href=${runOf(row)}>${shortId(row.run_id)}</a>`,
    ])} />
    <${More} of=${past} words="Earlier ones" />
    <${Rules} loaded=${rules} />
  </section>`;
}

/** @param {{place: Place}} props */
export function Proposals({ place }) {
  const open = useLoaded(`/treadle/v1/proposals?status=open&limit=${CARDS}`);
  const past = useLoaded(`/treadle/v1/proposals?limit=${DECIDED}`);
  const reload = () => [open, past].forEach((each) => each.reload());
  useChanges(["proposal"], reload);
  const rows = open.data?.proposals ?? [];
  const id = place.rest[0] ?? "";
  const isListed = !id || rows.some((/** @type {any} */ row) => row.id === id);
  return html`<section class="view page" aria-label="Fact proposals">
    <h2>Proposed, and not yet fact</h2>
    <${Loading} of=${open} label="Reading the proposals">
      <${Cards} rows=${isListed ? rows : [{ id, workspace_id: place.id }, ...rows]} marked=${id} empty="Nothing is proposed. A model that wants to change a fact asks here first."
        card=${(/** @type {any} */ row) => html`<${Proposal} key=${row.id} workspace=${row.workspace_id} id=${row.id} onDecided=${reload} />`} />
    <//>
    <${Past} names=${["State", "Changes", "By", "When"]} rows=${(past.data?.proposals ?? []).filter((/** @type {any} */ row) => row.status !== "open").map((/** @type {any} */ row) => [
      html`<${State} of=${row.status} />`, html`<a href=${address(["facts", row.workspace_id, row.id])}>${row.proposal.changes.map((/** @type {any} */ change) => change.path).join(", ")}</a>`,
      row.decision?.who || "–", row.decision ? clock(row.decision.at) : "",
    ])} />
    ${past.data?.proposals.length >= DECIDED && html`<p class="nothing">These are of the newest ${DECIDED}. Earlier ones are in the history of their workspace.</p>`}
  </section>`;
}

/** Where the call of an approval is shown in its run. @param {any} row */
const runOf = (row) => address(["runs", row.run_id], { node: `call-${row.call_id}` });

/** @param {{names: string[], rows: any[][]}} props */
function Past({ names, rows }) {
  return rows.length > 0 && html`<h2>Decided</h2><${Table} names=${names} rows=${rows} label="What was decided" />`;
}

/**
 * Cards, of which one is marked: keys go from one to the next and press its buttons.
 * @param {{rows: any[], marked: string, empty: string, card: (row: any) => any}} props
 */
function Cards({ rows, marked, empty, card }) {
  const [chosen, setChosen] = useState(marked);
  const at = Math.max(0, rows.findIndex((row) => row.id === chosen));
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const find = (/** @type {string} */ selector) => /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(selector));
  const move = (/** @type {number} */ by) => {
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    if (!next) return;
    setChosen(next.id);
    find(`[data-id="${next.id}"]`)?.focus();
  };
  const press = (/** @type {string} */ verb) => () => find(`[data-id="${rows[at]?.id}"] [data-verb="${verb}"]`)?.click();
  useLayoutEffect(() => onKeys({ j: () => move(1), k: () => move(-1), a: press("yes"), d: press("no"), e: press("edit") }));
  useLayoutEffect(() => box.current?.querySelectorAll(".card").forEach((/** @type {any} */ node) => (node.dataset.marked = String(node.dataset.id === rows[at]?.id))));
  useEffect(() => announce(rows.length > 0 ? `${rows.length} to decide.` : empty), [rows.length]);
  return html`<div ref=${box}>${rows.map(card)}</div>${rows.length === 0 && html`<p class="nothing">${empty}</p>`}
    ${rows.length >= CARDS && html`<p class="nothing">More wait: they come up as these are decided.</p>`}`;
}

/**
 * What a card keeps while it is being decided, and how a decision is sent.
 * @param {() => void} onDecided
 */
function useDecision(onDecided) {
  const { name: by, may } = useMe();
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState(/** @type {any} */ (null));
  const [reason, setReason] = useState("");
  const [refuses, setRefuses] = useState(false);
  const decide = async (/** @type {string} */ path, /** @type {any} */ body, /** @type {string} */ done) => {
    setBusy(true);
    setSaid(null);
    try {
      await send("POST", path, { ...body, by, reason });
      announce(done);
    } catch (error) {
      const { message, advice } = sayable(error);
      setSaid(asTrouble(error).status === 409 ? { message: `Somebody was quicker, or it has changed. ${message}`, advice: "Nothing was decided twice: what stands is shown." } : { message, advice, isBad: true });
    }
    setBusy(false);
    onDecided();
  };
  return { isOff: !may || busy, said, setSaid, reason, setReason, refuses, setRefuses, decide };
}

/** @param {unknown} error @returns {{message: string, advice: string}} */
const sayable = (error) => ({ message: asTrouble(error).message, advice: asTrouble(error).advice });

/**
 * The buttons of a card: yes, no with a reason, and what else there is to do.
 * @param {{on: ReturnType<typeof useDecision>, yes: string, no: string, onYes: (() => void) | null, onNo: () => void, edit: string,
 *   onEdit: () => void, children?: any}} props
 */
function Buttons({ on, yes, no, onYes, onNo, edit, onEdit, children = null }) {
  const { isOff, refuses, setRefuses } = on;
  return html`
    ${on.said && html`<${Note} ...${on.said} />`}
    ${refuses && html`<label class="stack"><span>Why not? The model reads this.</span>
      <input type="text" value=${on.reason} maxlength="2000" onInput=${typed(on.setReason)} /></label>`}
    <div class="row">
      ${!refuses && onYes && html`<button type="button" class="button" data-verb="yes" disabled=${isOff} onClick=${onYes}>${yes}</button>`}
      <button type="button" class="box" data-verb="no" disabled=${isOff} onClick=${() => (refuses ? onNo() : setRefuses(true))}>${no}</button>
      ${refuses
        ? html`<button type="button" class="box" onClick=${() => setRefuses(false)}>Back</button>`
        : onYes && html`<button type="button" class="box" data-verb="edit" disabled=${isOff} onClick=${onEdit}>${edit}</button>${children}`}
    </div>`;
}

/** Count down to a time. @param {{at: number}} props */
function Left({ at }) {
  const left = at - useClock();
  return left > 0 ? `expires in ${duration(left * 1000)}` : "expired";
}

/** @type {[string, string, string][]} */
const REMEMBERED = [
  ["", "", "only this call"],
  ["call", "session", "this very call, in this session"],
  ["tool", "session", "every call of this tool, in this session"],
  ["call", "project", "this very call, everywhere"],
];

/** @param {{row: any, onDecided: () => void}} props */
function CallCard({ row, onDecided }) {
  const on = useDecision(onDecided);
  const [edited, setEdited] = useState(/** @type {string | null} */ (null));
  const [wish, setWish] = useState("0");
  const isOpen = row.status === "pending";
  const answer = (/** @type {boolean} */ approve) => {
    const [kind, scope] = REMEMBERED[Number(wish)];
    const body = { approve, digest: row.digest, ...(approve && edited !== null && { arguments: edited }), ...(approve && kind && { remember: { kind, scope } }) };
    on.decide(`/treadle/v1/approvals/${encodeURIComponent(row.id)}`, body, `${row.tool} was ${approve ? "approved" : "denied"}.`);
  };
  return html`<article class="card" tabindex="-1" data-id=${row.id} aria-label=${`${row.tool}, ${row.status}`}>
    <header><h3><code>${row.tool}</code> <${State} of=${row.status} /></h3>
      <p class="small">asked ${ago(row.created_at)} · ${isOpen && html`<${Left} at=${row.expires_at} /> · `}<a href=${runOf(row)}>its run</a> · ${row.source}</p></header>
    <ul class="why">${row.reasons.map((/** @type {string} */ why) => html`<li key=${why}>${why}</li>`)}</ul>
    <${Before} row=${row} />
    ${edited === null
      ? html`<${Arguments} source=${row.arguments} label=${`Arguments · sha256 ${row.digest.slice(0, 12)}`} />`
      : html`<label class="stack"><span>Arguments to run with instead</span>
          <textarea class="area" rows=${Math.min(16, edited.split("\n").length + 1)} value=${edited} spellcheck=${false} onInput=${typed(setEdited)}></textarea></label>`}
    ${row.decision && html`<${Facts} rows=${[["Decided by", row.decision.by], ["When", clock(row.decision.at)], ["Reason", row.decision.reason], ["Changed to", row.decision.arguments]]} />`}
    ${isOpen ? html`<${Buttons} on=${on} yes=${edited === null ? "Approve" : "Approve as changed"} no="Deny" onYes=${() => answer(true)} onNo=${() => answer(false)}
      edit=${edited === null ? "Edit" : "Keep as asked"} onEdit=${() => setEdited(edited === null ? pretty(row.arguments) : null)}>
      <${Choice} kind="inline" label="and remember" value=${wish} onChoose=${setWish} options=${REMEMBERED.flatMap(([, scope, words], n) => (scope !== "session" || row.session_id ? [[String(n), words]] : []))} />
    <//>` : on.said && html`<${Note} ...${on.said} />`}
  </article>`;
}

/** What the model said just before the call. @param {{row: any}} props */
function Before({ row }) {
  const [isOpen, setIsOpen] = useState(false);
  const trace = useLoaded(isOpen ? `/treadle/v1/runs/${encodeURIComponent(row.run_id)}/trace` : "").data?.trace;
  const round = trace?.rounds.find((/** @type {any} */ each) => each.calls.some((/** @type {any} */ call) => call.call_id === row.call_id));
  return html`<details class="fold" onToggle=${(/** @type {any} */ event) => setIsOpen(event.target.open)}>
    <summary>What led to it</summary>
    ${trace && html`<${Facts} rows=${[["Asked", trace.question || "(nothing)"], ["The model, just before the call", round?.text || round?.reasoning || "(said nothing)"]]} />`}
  </details>`;
}

/** @param {{loaded: import("./parts.js").Loaded}} props */
function Rules({ loaded }) {
  const { may } = useMe();
  const rules = loaded.data?.rules ?? [];
  const forget = (/** @type {string} */ id) => send("DELETE", `/treadle/v1/approvals/rules/${encodeURIComponent(id)}`, {}).catch(() => {}).then(loaded.reload);
  return rules.length > 0 && html`<h2>Agreed to without asking</h2><ul class="plainlist">${rules.map((/** @type {any} */ row) => html`<li key=${row.id}>
    <code>${row.rule.tool}</code> ${{ call: "this very call", tool: "every call" }[/** @type {"call" | "tool"} */ (row.rule.kind)] ?? JSON.stringify(row.rule.patterns)}
    ${row.session_id ? " in one session" : " everywhere"} · since ${clock(row.created_at)}
    ${" "}<button type="button" class="box" disabled=${!may} aria-label=${`Ask again for ${row.rule.tool}`} onClick=${() => forget(row.id)}>Ask again</button></li>`)}</ul>`;
}

/** @param {{workspace: string, id: string, onDecided: () => void}} props */
function Proposal({ workspace, id, onDecided }) {
  const path = `/treadle/v1/workspaces/${encodeURIComponent(workspace)}/proposals/${encodeURIComponent(id)}`;
  const loaded = useLoaded(path);
  useChanges(["proposal"], loaded.reload);
  const decided = () => {
    loaded.reload();
    onDecided();
  };
  return html`<${Loading} of=${loaded} label="Reading the proposal">${loaded.data && html`<${FactCard} path=${path} row=${loaded.data} onDecided=${decided} />`}<//>`;
}

/** @param {{path: string, row: any, onDecided: () => void}} props */
function FactCard({ path, row, onDecided }) {
  const on = useDecision(onDecided);
  const { proposal, review } = row;
  const changes = /** @type {any[]} */ (proposal.changes);
  const [taken, setTaken] = useState(changes.map(() => true));
  const [edits, setEdits] = useState(/** @type {string[] | null} */ (null));
  const isOpen = row.status === "open" && review;
  const isWhole = taken.every(Boolean);
  const confirm = () => {
    /** @type {any} */
    const body = { version: review.facts_version, sha256: review.sha256 };
    const kept = changes.flatMap((_, n) => (taken[n] ? [n] : []));
    try {
      if (edits) body.changes = kept.map((n) => withValue(changes[n], edits[n]));
      else if (!isWhole) body.only = kept;
    } catch (error) {
      return on.setSaid({ ...sayable(error), isBad: true });
    }
    return on.decide(`${path}/confirm`, body, "It is fact now.");
  };
  const put = (/** @type {number} */ n, /** @type {(old: any) => any} */ change) => (/** @type {any} */ list) => list.map((/** @type {any} */ old, /** @type {number} */ m) => (m === n ? change(old) : old));
  return html`<article class="card" tabindex="-1" data-id=${row.id} aria-label=${`Proposal, ${row.status}`}>
    <header><h3>${changes.length} ${changes.length === 1 ? "change" : "changes"} <${State} of=${row.status === "open" ? "pending" : row.status} /></h3>
      <p class="small">${proposal.who || "a program"} · ${ago(proposal.at)} · workspace <code>${row.workspace_id}</code>${proposal.run_id && html` · <a href=${address(["runs", proposal.run_id])}>its run</a>`}</p></header>
    ${proposal.reason && html`<p class="text">${proposal.reason}</p>`}
    ${review?.obstacle && html`<${Note} message=${`It cannot be confirmed as it is: ${review.obstacle}.`} />`}
    <ol class="changes">${review?.is_stale
      ? review.three_way.map((/** @type {any} */ side) => html`<li key=${side.path}><p><code>${side.path}</code>${side.is_clash && html` <${State} of="clash" mood="bad" />`}</p>
        <div class="sides three"><${Pane} name="as it was" of=${side.path} text=${shown(side.base)} /><${Pane} name="now" of=${side.path} text=${shown(side.current)} />
          <${Pane} name="proposed" of=${side.path} text=${shown(side.proposed)} /></div></li>`)
      : changes.map((change, n) => html`<li key=${n}>
        <p>${isOpen && html`<input type="checkbox" id=${`${proposal.id}-${n}`} checked=${taken[n]} onChange=${() => setTaken(put(n, (old) => !old))} /> `}
          <label for=${isOpen ? `${proposal.id}-${n}` : null}><code>${change.path}</code> ${change.op && change.op !== "set" ? change.op : ""}</label></p>
        <div class="sides"><${Pane} name="now" of=${change.path} text=${shown((review?.diff ?? row.decision?.diff ?? []).find((/** @type {any} */ each) => each.path === change.path)?.before)} />
          ${edits && change.op !== "delete"
            ? html`<div><span>then</span><textarea class="area" rows="3" aria-label=${`Value of ${change.path}`} value=${edits[n]} spellcheck=${false} onInput=${typed((value) => setEdits(put(n, () => value)))}></textarea></div>`
            : html`<${Pane} name="then" of=${change.path} text=${change.op === "delete" ? shown(undefined) : shown(change.value ?? null)} />`}</div></li>`)}</ol>
    ${row.decision && html`<${Facts} rows=${[["Decided by", row.decision.who], ["When", clock(row.decision.at)], ["Reason", row.decision.reason]]} />`}
    ${isOpen ? html`<${Buttons} on=${on} yes=${`${isWhole ? "Confirm" : "Confirm what is ticked"}${edits ? ", as changed" : ""}`} no="Reject" onYes=${review.is_stale || !taken.some(Boolean) ? null : confirm}
      onNo=${() => on.decide(`${path}/reject`, {}, "It was rejected.")} edit=${edits ? "Keep as proposed" : "Edit"}
      onEdit=${() => setEdits(edits ? null : changes.map((change) => shown(change.value ?? null)))} />` : on.said && html`<${Note} ...${on.said} />`}
  </article>`;
}

/**
 * Return a change with a value that a person wrote.
 * @param {any} change
 * @param {string} text
 */
function withValue(change, text) {
  if (change.op === "delete") return change;
  try {
    return { ...change, value: JSON.parse(text) };
  } catch {
    throw new Trouble(`What stands at ${change.path} is no JSON.`, "Text is written in quotes.");
  }
}
