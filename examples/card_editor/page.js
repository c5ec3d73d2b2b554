// The page of the card editor: it shows a workspace, edits its draft, and lets a person decide proposals.
const API = "/treadle/v1/workspaces/card";
const $ = (id) => document.getElementById(id);

function make(tag, text = "", fields = {}) {
  const node = Object.assign(document.createElement(tag), fields);
  node.append(text);
  return node;
}

async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const answer = await fetch(path, options);
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error?.message ?? said.error ?? answer.statusText);
  return said;
}

async function act(deed) {
  $("status").textContent = "";
  try {
    await deed();
  } catch (error) {
    $("status").textContent = error.message;
  }
  await refresh();
}

function field(name, value, view) {
  const path = `/draft/${name}`;
  const isLocked = view.locks.includes(path);
  const label = make("label", name);
  const area = make("textarea", "", { value, rows: 3, cols: 70, disabled: isLocked, name });
  area.addEventListener("change", () =>
    act(() => call("PATCH", `${API}/draft`, { changes: [{ path, value: area.value }], base_version: view.version })),
  );
  const toggle = make("button", isLocked ? "Unlock" : "Lock", { type: "button" });
  toggle.addEventListener("click", () =>
    act(() =>
      isLocked
        ? call("DELETE", `${API}/locks?path=${encodeURIComponent(path)}`)
        : call("POST", `${API}/locks`, { path }),
    ),
  );
  const row = make("p");
  label.append(make("br"), area);
  row.append(label, " ", toggle);
  return row;
}

async function proposal(each) {
  const { review } = await call("GET", `${API}/proposals/${each.id}`);
  const box = make("article");
  box.append(make("h3", `Proposed: ${each.proposal.reason || "a change"}`));
  for (const line of review.diff ?? review.three_way ?? []) {
    const was = JSON.stringify(line.before ?? line.current);
    const will = JSON.stringify(line.after ?? line.proposed);
    box.append(make("p", `${line.path}: ${was ?? "(nothing)"} → ${will ?? "(nothing)"}`));
  }
  const yes = make("button", "Confirm", { type: "button", disabled: Boolean(review.obstacle) });
  const seen = { version: review.facts_version, sha256: review.sha256 };
  yes.addEventListener("click", () => act(() => call("POST", `${API}/proposals/${each.id}/confirm`, seen)));
  const why = make("input", "", { placeholder: "why not?" });
  const no = make("button", "Reject", { type: "button" });
  no.addEventListener("click", () =>
    act(() => call("POST", `${API}/proposals/${each.id}/reject`, { reason: why.value })),
  );
  box.append(yes, " ", why, " ", no);
  if (review.obstacle) box.append(make("p", review.obstacle));
  return box;
}

async function refresh() {
  const view = await call("GET", API);
  const texts = Object.entries(view.draft).filter(([, value]) => typeof value === "string");
  $("facts").replaceChildren(
    ...Object.entries(view.facts).flatMap(([name, value]) => [make("dt", name), make("dd", String(value))]),
  );
  $("draft").replaceChildren(...texts.map(([name, value]) => field(name, value, view)));
  const waiting = await call("GET", `${API}/proposals?status=open`);
  $("proposals").replaceChildren(...(await Promise.all(waiting.proposals.map(proposal))));
  const { changes } = await call("GET", `${API}/history?limit=20`);
  $("history").replaceChildren(
    ...changes.map((each) =>
      make("li", `${each.version}: ${each.kind} by ${each.actor}${each.reason ? ` (${each.reason})` : ""}`),
    ),
  );
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  act(async () => {
    const options = { method: "POST", headers: { "content-type": "application/json" } };
    options.body = JSON.stringify({ input: $("prompt").value, stream: true });
    const answer = await fetch("/treadle/v1/runs", options);
    const said = await answer.text();
    $("prompt").value = "";
    if (!answer.ok || !said.includes("run.ended")) throw new Error("The model did not answer.");
  });
});
$("import").addEventListener("change", () =>
  act(async () => call("POST", "/editor/import", JSON.parse(await $("import").files[0].text()))),
);
refresh();
