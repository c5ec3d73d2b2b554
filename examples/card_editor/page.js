// The page of the card editor: it shows a workspace, edits its draft, and lets a person decide proposals.
const API = "/treadle/v1/workspaces/card";
let latest = null;
const $ = (id) => document.getElementById(id);

function make(tag, fields = {}, ...inside) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(...inside);
  return node;
}

async function call(method, path, body) {
  // A change by somebody who is logged in has this header: no other site can send it.
  const options = { method, headers: { "x-treadle-page": "1" } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error?.message ?? said.error ?? answer.statusText);
  return said;
}

function tell(text, isWrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", isWrong);
}

// Do something, say how it went, and show what is true now: also after a failure, for then the page was behind.
async function act(deed) {
  tell("");
  let said = "";
  let isWrong = false;
  try {
    said = (await deed()) ?? "";
  } catch (error) {
    [said, isWrong] = [error.message, true];
  }
  await refresh();
  tell(said, isWrong);
}

// Texts are edited as they are, everything else as JSON.
const shown = (value) => (value === undefined ? "(nothing)" : typeof value === "string" ? value : JSON.stringify(value));
const written = (text, before) => (typeof before === "string" || before === undefined ? text : JSON.parse(text));

// Put nodes in the place of others, and leave those alone that stay: somebody may be writing in them.
function put(place, nodes) {
  const gone = [...place.children].filter((node) => !nodes.includes(node));
  gone.forEach((node) => node.remove());
  nodes.forEach((node, n) => node !== place.children[n] && place.insertBefore(node, place.children[n] ?? null));
}

// The field that is there, if something is written in it that is not saved; it is behind only if others changed it too.
function keptField(name, value, isLocked) {
  const area = $(`draft-${name}`);
  const isWritten = area && (area === document.activeElement || area.value !== area.shown);
  if (!isWritten || area.disabled !== isLocked) return null;
  if (area.shown === value || area.value === value) Object.assign(area, { shown: value, version: latest.version });
  return area.closest(".field");
}

function field(name, value, view) {
  const path = `/draft/${name}`;
  const isLocked = view.locks.includes(path);
  const kept = keptField(name, value, isLocked);
  if (kept) return kept;
  const area = make("textarea", { id: `draft-${name}`, value, rows: 3, disabled: isLocked, shown: value, version: view.version });
  area.addEventListener("change", () =>
    act(async () => {
      const sent = area.value;
      await call("PATCH", `${API}/draft`, { changes: [{ path, value: sent }], base_version: area.version });
      area.shown = sent;
    }),
  );
  const toggle = make("button", { type: "button", ariaLabel: `${isLocked ? "Unlock" : "Lock"} ${name}` });
  toggle.append(isLocked ? "Unlock" : "Lock");
  toggle.addEventListener("click", () =>
    act(async () => {
      if (isLocked) await call("DELETE", `${API}/locks?path=${encodeURIComponent(path)}`);
      else await call("POST", `${API}/locks`, { path });
    }),
  );
  const head = make("div", {}, make("label", { htmlFor: area.id }, name), toggle);
  return make("div", { className: "field" }, head, area);
}

// A change that a person may take, leave, or write otherwise.
function row(line, isStale) {
  const wanted = isStale ? line.proposed : line.after;
  const isRemoved = wanted === undefined;
  // What only others changed is shown, and left as it is.
  const isMeant = !isStale || JSON.stringify(line.base) !== JSON.stringify(line.proposed);
  const take = make("input", { type: "checkbox", checked: isMeant, ariaLabel: `Take ${line.path}` });
  const value = make("input", { value: shown(wanted), disabled: isRemoved, ariaLabel: `New value of ${line.path}` });
  const was = isStale ? [line.base, line.current] : [line.before];
  const cells = [line.path.replace("/facts/", ""), ...was.map(shown)].map((text) => make("td", {}, text));
  cells.slice(1).forEach((cell) => cell.classList.add("old"));
  const node = make("tr", { className: line.is_clash ? "clash" : "" }, make("td", {}, take), ...cells, make("td", {}, value));
  const change = () => (isRemoved ? { path: line.path, op: "delete" } : { path: line.path, value: written(value.value, wanted) });
  return { node, change, isTaken: () => take.checked, isEdited: () => value.value !== shown(wanted) };
}

function decision(review, rows) {
  const seen = { version: review.facts_version, sha256: review.sha256 };
  if (!review.is_stale && rows.every((each) => each.isTaken() && !each.isEdited())) return seen;
  const changes = rows.filter((each) => each.isTaken()).map((each) => each.change());
  if (!changes.length) throw new Error("Take at least one change, or reject the proposal.");
  return { ...seen, changes };
}

async function proposal(each) {
  const place = `${API}/proposals/${each.id}`;
  const { review } = await call("GET", place);
  if (!review) return make("article");
  const known = [...$("proposals").children].find((node) => node.told === JSON.stringify([each.id, review]));
  if (known) return known;
  const rows = (review.is_stale ? review.three_way : (review.diff ?? [])).map((line) => row(line, review.is_stale));
  const names = review.is_stale ? ["", "", "then", "now", "proposed"] : ["", "", "now", "proposed"];
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  const yes = make("button", { type: "button", className: "main" }, review.is_stale ? "Confirm as written here" : "Confirm");
  yes.addEventListener("click", () =>
    act(async () => {
      await call("POST", `${place}/confirm`, decision(review, rows));
      return "Confirmed: it is a fact now.";
    }),
  );
  const why = make("input", { placeholder: "why not?", ariaLabel: "Reason of the rejection" });
  const no = make("button", { type: "button" }, "Reject");
  no.addEventListener("click", () =>
    act(async () => {
      await call("POST", `${place}/reject`, { reason: why.value });
      return "Rejected: the model will read why.";
    }),
  );
  const box = make("article", { told: JSON.stringify([each.id, review]) }, make("h3", {}, `Proposed: ${each.proposal.reason || "a change"}`));
  if (review.obstacle) box.append(make("p", { className: "note" }, `Look again: ${review.obstacle}.`));
  box.append(make("table", {}, head, ...rows.map((one) => one.node)), make("div", { className: "buttons" }, yes, why, no));
  return box;
}

async function refresh() {
  const view = (latest = await call("GET", API));
  const texts = Object.entries(view.draft).filter(([, value]) => typeof value === "string");
  $("facts").replaceChildren(
    ...Object.entries(view.facts).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, shown(value))]),
  );
  put($("draft"), texts.map(([name, value]) => field(name, value, view)));
  const waiting = await call("GET", `${API}/proposals?status=open`);
  put($("proposals"), await Promise.all(waiting.proposals.map(proposal)));
  const { changes } = await call("GET", `${API}/history?limit=20`);
  $("history").replaceChildren(
    ...changes.map((each) =>
      make("li", { value: each.version }, `${each.kind} by ${each.actor}${each.reason ? ` (${each.reason})` : ""}`),
    ),
  );
}

// What the model said last, out of the events of its run.
function said(events) {
  const told = events.split("\n").filter((line) => line.startsWith("data:"));
  const items = told.map((line) => JSON.parse(line.slice(5))).filter((event) => event.type === "item.done");
  const last = items.filter((event) => event.item.type === "message").at(-1);
  return (last?.item.content ?? []).map((part) => part.text).join("");
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = $("prompt").value;
  $("go").disabled = true;
  act(async () => {
    tell("The model is at work…");
    const headers = { "content-type": "application/json", "x-treadle-page": "1" };
    const answer = await fetch("/treadle/v1/runs", { method: "POST", headers, body: JSON.stringify({ input, stream: true }) });
    const events = await answer.text();
    if (!answer.ok || !events.includes("run.ended")) throw new Error("The model did not answer.");
    $("prompt").value = "";
    return said(events);
  }).finally(() => ($("go").disabled = false));
});
$("import").addEventListener("change", () =>
  act(async () => {
    const [file] = $("import").files;
    $("import").value = "";
    await call("POST", "/editor/import", JSON.parse(await file.text()));
    return "Imported.";
  }),
);
refresh();
