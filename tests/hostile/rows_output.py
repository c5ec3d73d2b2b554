"""What models, tools and clients say, on its way out: into frames, headers, logs and metrics."""

import json
import re
from typing import Any

from hostile.house import UPSTREAM_KEY
from hostile.table import APIS, VENDORS, Row, Scene, send
from hostile.upstream import DONE, Line, Reply, call, chunk, good

FORGED = 'evil\r\nevent: forged\r\nid: 99\r\nset-cookie: a=b\r\n\r\ndata: {"forged":true}'
LINES = "one\u2028two\u2029three\x85four\x0bfive\x0csix"
EVENTS = re.compile(r"[a-z_]+(\.[a-z_]+)*")
"""The names of events are words that protocols know; none comes from a model."""


def calling(name: str, arguments: str, call_id: str) -> Reply:
    """Return the reply that calls a tool, and is content with any result."""

    def reply(line: Line) -> None:
        if line.asked["messages"][-1]["role"] == "tool":
            good(line)
            return
        line.open()
        line.send(call(arguments, name=name, call_id=call_id) + chunk(finish="tool_calls") + DONE)

    return reply


def says(text: str) -> Reply:
    """Return the reply that says something."""

    def reply(line: Line) -> None:
        line.open()
        line.send(chunk({"content": text}) + chunk(finish="stop") + DONE)

    return reply


def leaks(line: Line) -> None:
    """Show the gateway's own key in an error."""
    line.open("application/json", "401 Unauthorized")
    line.send(json.dumps({"error": {"message": f"Incorrect API key provided: {UPSTREAM_KEY}"}}).encode())


STREAMS = {
    "chat": b'"stream":true',
    "responses": b'"stream":true',
    "messages": b'"stream":true',
    "treadle": b'"stream":true',
}


def streamed(scene: Scene, api: str, model: str) -> bytes:
    """Return a whole stream."""
    answer = send(scene, api, APIS[api].body(more=STREAMS[api], model=model), model)
    assert answer.status == 200, answer.text[:300]
    return answer.body


def frames(scene: Scene) -> None:
    """Neither a tool's name nor its id or text can end a frame or begin a field."""
    for model in ("bad-frame", "bad-frame-text"):
        for api in STREAMS:
            for line in re.split(rb"\r\n|\n|\r", streamed(scene, api, model)):
                field, _, value = line.partition(b":")
                assert field in (b"", b"data", b"event", b"id"), line
                if field == b"event":
                    assert EVENTS.fullmatch(value.strip().decode()), line
                    assert b"forged" not in value, line
                if field == b"data" and value.strip() != b"[DONE]":
                    json.loads(value)
                if field == b"id":
                    assert value.strip().isdigit(), line
                    assert value.strip() != b"99", line


def separators(scene: Scene) -> None:
    """Line separators of Unicode are text: they arrive, and end nothing."""
    for api in ("chat", "responses", "messages"):
        body = streamed(scene, api, "bad-separators").decode()
        texts = [json.loads(line[5:]) for line in body.split("\n") if line.startswith("data:") and "[DONE]" not in line]
        assert any(LINES in _strings(each) for each in texts), api
    for api in VENDORS:
        answer = send(scene, api, APIS[api].body(model="bad-separators"), "bad-separators")
        assert LINES in _strings(answer.json), api


def _strings(value: Any) -> str:
    """Join all texts in a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\0".join(_strings(each) for each in value.values())
    return "\0".join(_strings(each) for each in value) if isinstance(value, list) else ""


def logs(scene: Scene) -> None:
    """Whatever is said, a line of the log is one JSON object and says nothing of it."""
    forged = '{"level":"error","message":"forged"}'
    for api in APIS:
        send(scene, api, APIS[api].body(json.dumps(f"\n{forged}\n").encode(), model="bad-frame"), "bad-frame")
    send(scene, "chat", APIS["chat"].body(model=f"bad-html\\n{forged}".replace('"', '\\"')))
    scene.house.ask("GET", "/v1/responses/x%0a%7b%22level%22%3a1%7d")
    scene.house.ask("GET", "/healthz", headers={"x-request-id": "a b;c", "user-agent": "\t" + forged})
    send(scene, "chat", APIS["chat"].body(model="bad-html"), "bad-html")
    lines = (scene.house.folder / "server.log").read_text().split("\n")
    for line in filter(None, lines):
        entry = json.loads(line)
        assert entry["message"] != "forged", line
        assert "\r" not in line, line


def labels(scene: Scene) -> None:
    """Names that clients and models make up do not become series."""

    def count() -> int:
        text = scene.house.ask("GET", "/metrics").text
        return sum(not line.startswith("#") for line in text.splitlines())

    def attack(prefix: str) -> None:
        for number in range(60):
            scene.house.ask("GET", f"/{prefix}/{number}")
            scene.house.ask("PATCH", f"/v1/responses/{prefix}{number}", b"{}")
            scene.house.ask("GET", f"/v1/models/{prefix}{number}")
        for number in range(12):
            body = APIS["chat"].body(model=f"bad-tool-{prefix}-{number}")
            assert send(scene, "chat", body).status == 200
            scene.house.ask("POST", f"/v1beta/models/{prefix}{number}:explode", b"{}")

    count()
    attack("first")
    before = count()
    attack("second")
    assert count() == before


def headers(scene: Scene) -> None:
    """No header comes from a model, and a client's id comes back only where it is harmless."""
    for api in VENDORS:
        answer = send(scene, api, APIS[api].body(model="bad-frame"), "bad-frame", x_request_id="abc 123")
        assert "set-cookie" not in answer.headers, api
        assert all("forged" not in value and "evil" not in value for value in answer.headers.values()), api
        assert answer.headers["x-request-id"] != "abc 123"
    known = send(scene, "chat", APIS["chat"].body(), x_request_id="abc-123")
    assert known.headers["x-request-id"] == "abc-123"


def secrets(scene: Scene) -> None:
    """The key of an upstream is in no answer, no journal that is shown, and no log, although the upstream says it."""
    for api in VENDORS:
        answer = send(scene, api, APIS[api].body(model="bad-secret"), "bad-secret")
        assert answer.status in (401, 500, 502, 503), answer.text[:300]
        assert UPSTREAM_KEY not in answer.text, api
    runs = scene.house.ask("GET", "/treadle/v1/runs?limit=20")
    assert UPSTREAM_KEY not in runs.text
    for run in runs.json["runs"]:
        assert UPSTREAM_KEY not in scene.house.ask("GET", f"/treadle/v1/runs/{run['id']}").text
    assert UPSTREAM_KEY not in (scene.house.folder / "server.log").read_text()


REPLIES: dict[str, Reply] = {
    "bad-frame": calling(FORGED, "{}", f"call{FORGED}"),
    "bad-frame-text": says(FORGED),
    "bad-separators": says(LINES),
    "bad-secret": leaks,
    **{
        f"bad-tool-{prefix}-{number}": calling(f"{prefix}_{number}", "{}", "c1")
        for prefix in ("first", "second")
        for number in range(12)
    },
}
ROWS = (
    Row(
        id="output.line_end_in_event_field",
        comes="repaired",
        why="only JSON in data, names from closed sets",
        tries=frames,
    ),
    Row(id="output.u2028", comes="accepted", why="SSE lines end at CR and LF alone", tries=separators),
    Row(id="output.log_forging", comes="repaired", why="a line is one JSON object", tries=logs),
    Row(id="output.metric_label_explosion", comes="repaired", why="labels are closed sets", tries=labels),
    Row(id="output.header_from_model", comes="refused", why="no header is made of what a model says", tries=headers),
    Row(
        id="output.secret_echoed_by_tool",
        comes="repaired",
        why="known secrets are blanked wherever they come from",
        tries=secrets,
    ),
)
