// @ts-check
// One run as a tree with a timeline: the run, its rounds, their calls. What is marked in the tree is shown beside it,
// and is part of the address.

import { asTrouble, send } from "../shared/api.js";
import { live } from "../shared/stream.js";
import { announce, brief, count, duration, html, money, Note, onKeys, pretty, typed, useClock, useEffect, useLayoutEffect, useRef, useState } from "../shared/ui.js";
import { address, go, here, refine } from "./address.js";
import { Arguments, Choice, clock, Code, Confirm, Diff, Facts, Loading, State, tokens, useLoaded, useMe } from "./parts.js";

/**
 * @typedef {{id: string, level: number, kind: "run" | "round" | "call", name: string, state: string, parent: string,
 *   from: number, to: number | null, waits: [number, number | null] | null, tokens: string, cost: string, of: any}} Node
 */

const ENDED = new Set(["requires_action", "completed", "incomplete", "failed", "cancelled"]);
const BAD = new Set(["failed", "denied", "expired", "interrupted"]);
const AGAIN_MS = 400;
const ANYWAY_MS = 5_000;

/** @param {{place: import("./address.js").Place}} props */
export function Run({ place }) {
  const loaded = useLoaded(`/treadle/v1/runs/${encodeURIComponent(place.id)}/trace`);
  const isGoing = loaded.data !== null && !ENDED.has(loaded.data.run.status);
  useFollow(place.id, isGoing, loaded.reload);
  const passed = useSince(loaded.data, isGoing);
  return html`<section class="view" aria-label="Run"><${Loading} of=${loaded} label="Reading the run">
    ${loaded.data && html`<${Tree} data=${{ ...loaded.data, now: loaded.data.now + passed }} query=${place.query} reload=${loaded.reload} />`}
  <//></section>`;
}

/**
 * Tell how many seconds ago something was read, for as long as that counts.
 * @param {any} data
 * @param {boolean} isGoing
 */
function useSince(data, isGoing) {
  const read = useRef({ data, at: 0 });
  if (read.current.data !== data) read.current = { data, at: performance.now() };
  useClock(isGoing);
  return isGoing ? (performance.now() - read.current.at) / 1000 : 0;
}

/**
 * Read a run that goes on again whenever something happens in it, and now and then in any case.
 * @param {string} id
 * @param {boolean} isGoing
 * @param {() => void} reload
 */
function useFollow(id, isGoing, reload) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    if (!isGoing) return undefined;
    let isSoon = false;
    const read = () => {
      isSoon = false;
      timer = setTimeout(read, ANYWAY_MS);
      if (!document.hidden) latest.current();
    };
    let timer = setTimeout(read, ANYWAY_MS);
    const hear = () => {
      if (isSoon) return;
      isSoon = true;
      clearTimeout(timer);
      timer = setTimeout(read, AGAIN_MS);
    };
    const stops = [live.watch(id, 0, hear), live.on("run", (row) => row.id === id && hear())];
    return () => {
      clearTimeout(timer);
      stops.forEach((stop) => stop());
    };
  }, [id, isGoing]);
}

/** @param {any} data @returns {Node[]} */
function nodesOf({ run, trace }) {
  /** @type {Node[]} */
  const nodes = [{
    id: "run", level: 1, kind: "run", name: "run", state: run.status, parent: "", from: run.created_at, to: run.ended_at,
    waits: null, tokens: tokens(run.usage ?? trace.usage), cost: money(run.cost_usd ?? trace.cost_usd), of: run,
  }];
  trace.rounds.forEach((/** @type {any} */ round, /** @type {number} */ n) => {
    const parent = `round-${n + 1}`;
    if (round.number > 0) nodes.push({
      id: parent, level: 2, kind: "round", name: `${round.number} · ${round.model}`, state: round.state, parent: "run",
      from: round.asked_at, to: round.replied_at ?? (round.state === "going" ? null : round.asked_at), waits: null,
      tokens: tokens(round.usage), cost: money(round.cost_usd), of: round,
    });
    for (const call of round.calls) nodes.push({
      id: `call-${call.call_id}`, level: round.number > 0 ? 3 : 2, kind: "call", name: call.name, state: call.state, parent: round.number > 0 ? parent : "run",
      from: call.started_at ?? call.called_at, to: call.ended_at ?? (call.state === "running" ? null : call.called_at),
      waits: call.approval?.asked_at ? [call.approval.asked_at, call.approval.decided_at] : null, tokens: "", cost: "", of: call,
    });
  });
  return nodes;
}

/** @param {{data: any, query: URLSearchParams, reload: () => void}} props */
function Tree({ data, query, reload }) {
  const nodes = nodesOf(data);
  const [folded, setFolded] = useState(/** @type {Set<string>} */ (new Set()));
  const errors = nodes.filter((node) => node.kind !== "run" && (BAD.has(node.state) || node.of.error));
  const first = useRef("");
  const named = (/** @type {string | null} */ id) => nodes.find((node) => node.id === id);
  const marked = named(query.get("node")) ?? named(first.current) ?? errors[0] ?? nodes.find((node) => node.state === "waiting" && node.kind === "call") ?? nodes[0];
  first.current = marked.id;
  const seen = nodes.filter((node) => !folded.has(node.parent));
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const mark = (/** @type {Node | undefined} */ node) => {
    if (!node) return;
    refine({ node: node.id, tab: "" });
    requestAnimationFrame(() => list.current?.querySelector(`[data-id="${CSS.escape(node.id)}"]`)?.scrollIntoView({ block: "nearest" }));
    /** @type {HTMLElement | null | undefined} */
    const item = list.current?.querySelector(`[data-id="${CSS.escape(node.id)}"]`);
    if (list.current?.contains(document.activeElement)) item?.focus();
  };
  const move = (/** @type {number} */ by) => mark(seen[Math.max(0, Math.min(seen.length - 1, seen.indexOf(marked) + by))]);
  const fold = (/** @type {string} */ id, /** @type {boolean} */ isFolded) => {
    const next = new Set(folded);
    if (isFolded) next.add(id);
    else next.delete(id);
    setFolded(next);
  };
  const onArrow = (/** @type {KeyboardEvent} */ event) => {
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowDown: () => move(1),
      ArrowUp: () => move(-1),
      Home: () => mark(seen[0]),
      End: () => mark(seen.at(-1)),
      ArrowLeft: () => (marked.kind === "round" && !folded.has(marked.id) ? fold(marked.id, true) : mark(nodes.find((node) => node.id === marked.parent))),
      ArrowRight: () => fold(marked.id, false),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  };
  useLayoutEffect(() => onKeys({ j: () => move(1), k: () => move(-1), e: () => mark(errors[(errors.indexOf(marked) + 1) % errors.length]) }));
  useEffect(() => announce(`${marked.kind} ${marked.name}: ${marked.state}`), [marked.id, marked.state]);
  return html`
    <${Head} data=${data} errors=${errors} onMark=${mark} reload=${reload} />
    <div class="trace">
      <ul class="tree" role="tree" aria-label="The run, its rounds and their calls" ref=${list} onKeyDown=${onArrow}>
        ${seen.map((node) => html`<${Line} key=${node.id} node=${node} data=${data} isMarked=${node === marked} onMark=${() => mark(node)}
          isFolded=${folded.has(node.id)} hasParts=${node.kind === "round" && node.of.calls.length > 0} onFold=${() => fold(node.id, !folded.has(node.id))} />`)}
      </ul>
      <section class="detail" aria-label="What is marked">
        ${marked.kind === "run" && html`<${RunDetail} data=${data} />`}
        ${marked.kind === "round" && html`<${RoundDetail} key=${marked.id} run=${data.run} round=${marked.of} tab=${query.get("tab") ?? ""} />`}
        ${marked.kind === "call" && html`<${CallDetail} key=${marked.id} call=${marked.of} />`}
      </section>
    </div>`;
}

const ICONS = { run: "▣", round: "◆", call: "ƒ" };

/**
 * @param {{node: Node, data: any, isMarked: boolean, isFolded: boolean, hasParts: boolean, onMark: () => void,
 *   onFold: () => void}} props
 */
function Line({ node, data, isMarked, isFolded, hasParts, onMark, onFold }) {
  const start = data.run.created_at;
  const whole = Math.max(0.001, (data.run.ended_at ?? data.now) - start);
  const bar = (/** @type {number} */ from, /** @type {number | null} */ to) => {
    const left = Math.max(0, Math.min(1, (from - start) / whole));
    const width = Math.max(0, Math.min(1 - left, ((to ?? data.now) - from) / whole));
    return { left: `${left * 100}%`, width: `max(2px, ${width * 100}%)` };
  };
  const tookS = node.of.duration_s ?? (node.to === null ? data.now : node.to) - node.from;
  return html`<li role="treeitem" data-id=${node.id} data-kind=${node.kind} aria-level=${node.level} aria-selected=${isMarked ? "true" : "false"}
      aria-expanded=${hasParts ? String(!isFolded) : null} tabindex=${isMarked ? 0 : -1} onClick=${onMark}>
    <span class="label">
      ${hasParts && html`<span class="twist" aria-hidden="true" onClick=${(/** @type {Event} */ event) => { event.stopPropagation(); onFold(); }}>${isFolded ? "▸" : "▾"}</span>`}
      <span class="icon" aria-hidden="true">${ICONS[node.kind]}</span>
      <span class="name">${node.name}${node.kind === "call" && html` <small>${brief(node.of.arguments).slice(0, 80)}</small>`}</span>
    </span>
    <${State} of=${node.state} />
    <span class="sums">${tookS > 0 ? duration(tookS * 1000) : ""}${node.tokens && html` <small>${node.tokens}</small>`}${node.cost && html` <small>${node.cost}</small>`}</span>
    <span class="lane" aria-hidden="true">
      ${node.waits && html`<i class="waits" style=${bar(node.waits[0], node.waits[1])}></i>`}
      <i data-kind=${node.kind} data-bad=${BAD.has(node.state) ? "true" : "false"} style=${bar(node.from, node.to)}></i>
    </span>
  </li>`;
}

/** @param {{data: any, errors: Node[], onMark: (node: Node) => void, reload: () => void}} props */
function Head({ data, errors, onMark, reload }) {
  const { run, trace } = data;
  const { error } = run;
  const used = tokens(run.usage ?? trace.usage);
  const sums = [used && `${used} tokens`, money(run.cost_usd ?? trace.cost_usd)].filter(Boolean).join(" · ");
  return html`<header class="head">
    <div>
      <h2>${trace.question.slice(0, 300) || "(nothing said)"}</h2>
      <p class="small"><${State} of=${run.status} /> ${run.model} over ${run.protocol} · ${count(trace.rounds.length)} ${trace.rounds.length === 1 ? "round" : "rounds"}${sums && ` · ${sums}`} · <code>${run.id}</code></p>
    </div>
    <${Actions} data=${data} reload=${reload} />
    ${error && html`<${Note} message=${`${error.code}: ${error.message}`} advice=${error.hint ?? ""} isBad=${true} />`}
    ${errors.length > 0 && html`<p class="errors"><b>${errors.length === 1 ? "1 thing" : `${errors.length} things`} went wrong:</b>
      ${errors.slice(0, 8).map((node) => html` <button type="button" class="box" key=${node.id} onClick=${() => onMark(node)}>${node.name} · ${node.state}</button>`)}</p>`}
  </header>`;
}

/** @param {{data: any, reload: () => void}} props */
function Actions({ data, reload }) {
  const { run } = data;
  const path = `/treadle/v1/runs/${encodeURIComponent(run.id)}`;
  const { may } = useMe();
  const [asks, setAsks] = useState("");
  const [said, setSaid] = useState(/** @type {{message: string, advice?: string, isBad?: boolean} | null} */ (null));
  const isOver = ENDED.has(run.status);
  const close = () => setAsks("");
  const act = async (/** @type {() => Promise<void>} */ work) => {
    setSaid(null);
    close();
    try {
      await work();
    } catch (error) {
      const { message, advice } = asTrouble(error);
      setSaid({ message, advice, isBad: true });
    }
  };
  const cancel = () => act(async () => {
    await send("POST", `${path}/cancel`);
    reload();
  });
  const prove = () => act(async () => {
    const proof = await send("POST", `${path}/replay`, {});
    setSaid(proof.is_same
      ? { message: `The same again, byte for byte: ${proof.rounds} rounds, ${proof.calls} calls, ${proof.entries} entries, ${proof.events} events.` }
      : { message: `It took another way. ${proof.problem}`, isBad: true });
  });
  const rerun = () => act(async () => go(address(["runs", (await send("POST", `${path}/replay`, { live_tools: true })).id])));
  const fork = (/** @type {any} */ wish) => act(async () => go(address(["runs", (await send("POST", `${path}/fork`, wish)).id])));
  return html`<div class="actions row">
      ${!isOver && html`<button type="button" class="button" disabled=${!may} onClick=${cancel}>Cancel</button>`}
      ${isOver && html`<button type="button" class="box" disabled=${!may} onClick=${() => setAsks("fork")}>Fork…</button>
        <button type="button" class="box" disabled=${!may} onClick=${prove} title="Drive it again from its journal and compare">Replay</button>
        <button type="button" class="box" disabled=${!may} onClick=${() => setAsks("tools")}>Run the tools again…</button>`}
      ${run.session_id && html`<a class="box" href=${address(["sessions", run.session_id])}>Session</a>`}
      ${run.previous_id && html`<a class="box" href=${address(["runs", run.previous_id])}>Run before</a>`}
      <a class="box" href=${`${path}/export`} download>Export</a>
      ${isOver && html`<a class="box" href=${`${path}/export?format=scenario`} download>As scenario</a>
        <a class="box" href=${`${path}/export?format=cassette`} download>As cassette</a>`}
    </div>
    ${said && html`<${Note} ...${said} />`}
    ${asks === "tools" && html`<${Confirm} title="Run the tools again?" verb="Run them" onDo=${rerun} onClose=${close}>
      <p>A new run: the model says what it said, and every tool really runs once more, with all its effects.</p><//>`}
    ${asks === "fork" && html`<${Fork} data=${data} onDo=${fork} onClose=${close} />`}`;
}

/** @param {{data: any, onDo: (wish: {round: number, model: string | null}) => void, onClose: () => void}} props */
function Fork({ data, onDo, onClose }) {
  const marked = /^round-(\d+)$/.exec(here().query.get("node") ?? "");
  const rounds = data.trace.rounds.filter((/** @type {any} */ round) => round.number > 0 && round.state !== "void");
  const [round, setRound] = useState(marked ? data.trace.rounds[Number(marked[1]) - 1]?.number || 1 : 1);
  const [model, setModel] = useState("");
  return html`<${Confirm} title="Fork this run" verb="Fork" onClose=${onClose} onDo=${() => onDo({ round, model: model.trim() || null })}>
    <p>A new run that goes on from just before a round. What was said and done before it counts, and no tool of it runs again.</p>
    <${Choice} label="Just before round" value=${String(round)} options=${rounds.map((/** @type {any} */ one) => String(one.number))} onChoose=${(/** @type {string} */ n) => setRound(Number(n))} />
    <label><span>Model</span><input type="text" value=${model} placeholder=${`${data.run.model} (the same)`} autocomplete="off"
      onInput=${typed(setModel)} /></label>
  <//>`;
}

/** @param {{data: any}} props */
function RunDetail({ data }) {
  const { run, trace } = data;
  const answer = trace.rounds.findLast((/** @type {any} */ round) => round.text)?.text ?? "";
  return html`
    <${Facts} rows=${[
      ["State", html`<${State} of=${run.status} />`],
      ["Began", clock(run.created_at)],
      ["Took", duration(((run.ended_at ?? data.now) - run.created_at) * 1000)],
      ["Stopped by", run.limit ? `limit ${run.limit}` : run.stop && run.stop !== "done" ? run.stop : ""],
      ["Tokens in / out", tokens(run.usage ?? trace.usage)],
      ["Cached", run.usage?.cached_tokens ? count(run.usage.cached_tokens) : ""],
      ["Reasoning", run.usage?.reasoning_tokens ? count(run.usage.reasoning_tokens) : ""],
      ["Response", html`<code>${run.response_id}</code>`],
      ["Conversation", html`<code>${run.conversation_id}</code>`],
    ]} />
    <h3>Asked</h3><p class="text">${trace.question || "(nothing)"}</p>
    ${answer && html`<h3>Answered</h3><p class="text">${answer}</p>`}
    <${Notes} notes=${trace.notes} />`;
}

const TABS = [["", "Overview"], ["plan", "Plan"], ["request", "Request"], ["reply", "Reply"]];

/** @param {{run: any, round: any, tab: string}} props */
function RoundDetail({ run, round, tab }) {
  const isWire = tab !== "" && round.state !== "void";
  const loaded = useLoaded(isWire ? `/treadle/v1/runs/${encodeURIComponent(run.id)}/rounds/${round.number}` : "");
  const choose = (/** @type {string} */ name) => refine({ node: here().query.get("node") ?? "", tab: name });
  return html`
    <div class="pills" role="group" aria-label="What to show of this round">
      ${TABS.map(([name, title]) => html`<button type="button" key=${name} aria-pressed=${tab === name ? "true" : "false"} onClick=${() => choose(name)}>${title}</button>`)}
    </div>
    ${tab === "" && html`<${Overview} round=${round} />`}
    ${tab !== "" && (round.state === "void"
      ? html`<${Note} message="This model call was cut off and made again." advice="What it sent is what the next one sent." />`
      : html`<${Loading} of=${loaded} label="Writing the model call again">
          ${loaded.data && (tab === "plan" ? html`<${Plan} wire=${loaded.data} />` : html`<${Wire} wire=${loaded.data} side=${tab} />`)}
        <//>`)}`;
}

/** @param {{round: any}} props */
function Overview({ round }) {
  const choice = round.tool_choice?.mode ?? "auto";
  return html`
    ${round.error && html`<${Note} message=${`${round.error.code}: ${round.error.message}`} advice=${round.error.hint ?? ""} isBad=${true} />`}
    <${Facts} rows=${[
      ["State", html`<${State} of=${round.state} />`],
      ["Model", round.model],
      ["Asked", clock(round.asked_at)],
      ["Took", round.replied_at ? duration((round.replied_at - round.asked_at) * 1000) : ""],
      ["Tokens in / out", tokens(round.usage)],
      ["Stop", round.raw_stop && round.raw_stop !== round.stop ? `${round.stop} (${round.raw_stop})` : round.stop],
      ["Plan", html`<code title=${round.fingerprint}>${round.fingerprint.slice(0, 12)}</code>`],
      ["Sends", `${round.items} items${round.number > 1 ? ` (${round.items_added} more than before)` : ""}, ${round.tools} tools${round.is_tools_changed ? " (others than before)" : ""}`],
      ["Tool choice", choice === "auto" ? "" : choice],
      ["Last answer", round.is_final ? `asked for after the limit ${round.limit ?? ""}` : ""],
    ]} />
    ${round.reasoning && html`<details class="fold"><summary>Reasoning</summary><p class="text">${round.reasoning}</p></details>`}
    ${round.text && html`<h3>Said</h3><p class="text">${round.text}</p>`}
    <${Notes} notes=${round.notes} />`;
}

/** Fidelity notes, quirks and repairs. @param {{notes: any[]}} props */
function Notes({ notes }) {
  if (notes.length === 0) return null;
  return html`<h3>Notes</h3><ul class="notes">${notes.map((note, n) => html`<li key=${n}><b data-action=${note.action}>${note.action}</b>
    <code>${note.code}</code>${note.count > 1 ? ` × ${note.count}` : ""}<p>${note.message}</p></li>`)}</ul>`;
}

/** @param {{wire: any}} props */
function Plan({ wire }) {
  return html`
    <p class="small">sha256 <code>${wire.fingerprint}</code></p>
    ${wire.diff ? html`<${Diff} text=${wire.diff} label="What differs from the plan before" />` : wire.round > 1 && html`<p class="small">The plans are too long to compare here.</p>`}
    <${Code} text=${JSON.stringify(wire.plan, null, 2)} language="json" label="The whole plan" />`;
}

/** @param {{wire: any, side: string}} props */
function Wire({ wire, side }) {
  const { request, reply } = wire;
  const origin = wire.is_recorded
    ? "As it went over the network."
    : "Written again from the journal by the code that sends it; start with --record to keep the bytes themselves.";
  return html`
    <p class="small"><b class="badge" data-recorded=${wire.is_recorded ? "true" : "false"}>${wire.is_recorded ? "recorded" : "written again"}</b>
      ${" "}${wire.upstream} · ${wire.protocol} · ${origin}</p>
    ${wire.quirks.length > 0 && html`<p class="small">Written for the quirks ${wire.quirks.join(", ")}.</p>`}
    ${wire.notes.map((/** @type {string} */ note) => html`<p class="small" key=${note}>${note}</p>`)}
    ${side === "request" && html`<p class="line"><code>${request.method} ${request.url}</code></p>
      <${Facts} rows=${Object.entries(request.headers)} /><${Code} text=${pretty(request.body)} language="json" label="Body" />`}
    ${side === "reply" && (reply
      ? html`<p class="line"><code>${reply.status}</code> in ${count(reply.chunks)} pieces, ended by ${reply.how}</p>
        <${Facts} rows=${Object.entries(reply.headers)} /><${Code} text=${reply.body} label="Body" wrap=${true} />`
      : html`<${Note} message="There is no reply yet." />`)}`;
}

/** @param {{call: any}} props */
function CallDetail({ call }) {
  const { approval } = call;
  return html`
    <h3 class="title"><code>${call.name}</code> <${State} of=${call.state} /></h3>
    <${Facts} rows=${[
      ["Run by", call.side === "client" ? "the client" : call.source || "the server"],
      ["Effect", call.effect],
      ["Sandbox", call.sandbox],
      ["Took", call.duration_s === null || call.duration_s === undefined ? "" : duration(call.duration_s * 1000)],
      ["Called", clock(call.called_at)],
      ["Result", call.rc && call.rc !== "ok" ? call.rc : ""],
      ["Size", call.output_bytes ? `${count(call.output_bytes)} bytes${call.is_cut ? ", cut" : ""}` : ""],
      ["Tries", call.attempts > 1 ? call.attempts : ""],
      ["Written by", call.origin === "model" ? "" : `the model, ${call.origin}`],
    ]} />
    ${approval && html`<${ApprovalLine} approval=${approval} />`}
    <${Arguments} source=${call.arguments} label="Arguments" />
    ${call.raw !== null && html`<${Code} text=${call.raw} label="As the model wrote them" wrap=${true} />`}
    ${call.summary && call.summary !== call.output && html`<p class="text">${call.summary}</p>`}
    ${call.output !== null && html`<${Code} text=${pretty(call.output)} language=${/^\s*[[{]/.test(call.output) ? "json" : ""} label="Result" wrap=${true} />`}`;
}

/** @param {{approval: any}} props */
function ApprovalLine({ approval }) {
  const waited = approval.decided_at && approval.asked_at ? ` after ${duration((approval.decided_at - approval.asked_at) * 1000)}` : "";
  return html`<div class="asked">
    <p><b>Approval</b> <${State} of=${approval.status} />${approval.by && ` by ${approval.by}`}${waited}
      ${approval.status === "pending" && html` <a href=${address(["approvals", approval.id])}>Decide</a>`}</p>
    ${approval.reasons.map((/** @type {string} */ reason) => html`<p class="small" key=${reason}>${reason}</p>`)}
    ${approval.reason && html`<p class="text">${approval.reason}</p>`}
    ${approval.arguments && html`<${Code} text=${pretty(approval.arguments)} language="json" label="Changed to" />`}
  </div>`;
}
