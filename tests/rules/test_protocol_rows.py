"""A protocol is one row: its name is spelled nowhere else, and a fifth one takes four files."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from rules.tree import SOURCE, TESTS, modules, parsed
from treadle.protocols.protocol_registry import PROTOCOL_NAMES

REGISTRY = Path("protocols/protocol_registry.py")
OTHER_WORDS = {
    "cli/commands/sessions_command.py": (1, "a field of a session"),
    "cli/help_pages.py": (1, "the command `chat`"),
    "cli/main.py": (2, "the command `chat`"),
    "config/environment.py": (1, "the name of a provider"),
    "evals/bfcl/bfcl_client.py": (1, "a field of a Chat request"),
    "evals/results/inspect_log.py": (1, "a field of Inspect's log"),
    "protocols/chat/client_request.py": (6, "a field of the request"),
    "protocols/chat/upstream_request.py": (1, "a field of the request"),
    "protocols/messages/client_request.py": (5, "a field of the request"),
    "protocols/messages/upstream_request.py": (1, "a field of the request"),
    "protocols/text_calls/dialect_table.py": (2, "a family of models"),
    "protocols/translation/history_roles.py": (2, "the field of a note"),
    "protocols/translation/schema_forms.py": (1, "a form of schemas"),
    "protocols/translation/upstream_features.py": (1, "a form of schemas"),
    "providers/quirk_edits.py": (3, "a field of the request"),
    "server/api/chat_routes.py": (1, "a field of the request"),
    "server/api/messages_routes.py": (1, "a field of the request"),
    "server/openapi_document.py": (3, "a field of OpenAPI"),
    "telemetry/spans.py": (1, "an operation as OpenTelemetry names it"),
    "wasm/cchat_parameters.py": (1, "a field of a Chat request"),
    "wasm/execution/conversation_runs.py": (1, "a field of a Chat request"),
}
"""Modules that use a word which is also a protocol's name for something else, how often, and for what."""

CODEC = '''"""A protocol of one text to and one text back."""
from typing import Any

from treadle.core.events import Finished, ItemAdded, ItemDone, TextDelta
from treadle.core.items import MessageItem, TextPart, text_message, text_of
from treadle.core.json import read_json, write_json
from treadle.core.request import Request
from treadle.protocols.codec_interfaces import WrittenRequest


def read_request(body: bytes) -> Request:
    asked: Any = read_json(body)
    return Request(protocol="parrot", model=asked["model"], items=(text_message("user", asked["say"]),))


class Encoder:
    def __init__(self, request, ids) -> None:
        self._text = ""

    def feed(self, event) -> list[bytes]:
        if isinstance(event, ItemDone) and isinstance(event.item, MessageItem):
            self._text += text_of(event.item.content)
        return []

    def body(self) -> bytes:
        return write_json({"heard": self._text})


def write_request(plan, *, provider: str = "") -> WrittenRequest:
    return WrittenRequest(body=write_json({"model": plan.model, "say": text_of(plan.items[-1].content)}))


class Decoder:
    def __init__(self, ids, **_: object) -> None:
        self._body = b""

    def feed(self, data: bytes) -> list:
        self._body += data
        return []

    def finish(self) -> list:
        text: Any = read_json(self._body)["heard"]
        item = MessageItem(role="assistant", content=(TextPart(text=text),))
        return [
            ItemAdded(index=0, item=MessageItem(role="assistant", content=())),
            TextDelta(index=0, text=text),
            ItemDone(index=0, item=item),
            Finished(stop="done"),
        ]
'''
ROW = """
def _parrot() -> Codec:
    from treadle.protocols import parrot

    return Codec(
        read_request=parrot.read_request,
        encoder=parrot.Encoder,
        write_request=parrot.write_request,
        decoder=parrot.Decoder,
    )


_ROWS = (
    ProtocolRow(
        name="parrot",
        vendor="anthropic",
        load_codec=_parrot,
        paths=("/v1/parrot", "/parrot"),
        upstream_path="/parrot",
        key_header="x-seed",
    ),
"""
ROUTES = '''"""Parrot."""
from treadle.protocols import parrot
from treadle.server import run_response
from treadle.server.auth.route_permissions import RouteAccess
from treadle.server.route import ANY, RouteGroup


async def create(service, exchange) -> None:
    await run_response.reply(service, exchange, await service.read(exchange, parrot.read_request))


ROUTES = (RouteGroup("Parrot", RouteAccess("parrot")).post("/v1/parrot", create, "Answer as a parrot does", ANY),)
'''
DRIVE = """
import json, sys, urllib.error, urllib.request
from pathlib import Path

import msgspec
from gateway.gateway import Gateway
from treadle.access.key_grants import APIS
from treadle.config.settings import Upstream
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.provider_endpoint import Endpoint, Secret

def post(path, body):
    asked = urllib.request.Request(url=path, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)

given = msgspec.convert({"name": "a", "base_url": "http://a/v1", "protocol": "parrot"}, Upstream)
endpoint = Endpoint(name="a", base_url="http://a/v1", protocol=given.protocol, key=Secret("cracker"))
with Gateway(Script(turns=(ScriptTurn(text="Hello."),)), Path(sys.argv[1]), protocol="parrot") as gateway:
    status, answer = post(gateway.url + "/parrot", b'{"model": "m", "say": "Hi."}')
    lost, refusal = post(gateway.origin + "/parrot/nowhere", b"{}")
    sent = gateway.upstream.received[0]
print(json.dumps({
    "answer": [status, answer],
    "sent": [sent.path, json.loads(sent.body)],
    "headers": dict(endpoint.request_headers),
    "refusal": [lost, refusal["type"], refusal["error"]["type"]],
    "grants": "parrot" in APIS,
}))
"""


def _spelled(module: Path) -> int:
    """Return how many string literals of a module are the name of a protocol."""
    return sum(isinstance(node, ast.Constant) and node.value in PROTOCOL_NAMES for node in ast.walk(parsed(module)))


def test_the_name_of_a_protocol_is_spelled_in_its_row_alone() -> None:
    """Who compares names knows which protocols there are; a field of the row says what makes the difference."""
    counts = {path.relative_to(SOURCE): _spelled(path) for path in modules()}
    found = {path.as_posix(): count for path, count in counts.items() if count and path != REGISTRY}
    assert found == {module: count for module, (count, _) in OTHER_WORDS.items()}


def test_a_fifth_protocol_is_added_in_four_files(tmp_path: Path) -> None:
    """With a codec, a row, a handler and a route the gateway answers its clients and asks its upstreams."""
    package = tmp_path / "src" / "treadle"
    shutil.copytree(SOURCE, package)
    changes = {
        "protocols/parrot.py": CODEC,
        "protocols/protocol_registry.py": _edited(
            REGISTRY, ("ProtocolName = Literal[", 'ProtocolName = Literal["parrot", '), ("\n_ROWS = (\n", ROW)
        ),
        "server/api/parrot_routes.py": ROUTES,
        "server/route_table.py": _edited(
            Path("server/route_table.py"),
            (
                "import chat_routes as chat\n",
                "import chat_routes as chat\nfrom treadle.server.api import parrot_routes\n",
            ),
            ("    *chat.ROUTES,\n", "    *chat.ROUTES,\n    *parrot_routes.ROUTES,\n"),
        ),
    }
    assert len(changes) <= 4
    for name, text in changes.items():
        (package / name).write_text(text)
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", DRIVE, str(home)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), str(TESTS)])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "answer": [200, {"heard": "Hello."}],
        "sent": ["/v1/parrot", {"model": "m", "say": "Hi."}],
        "headers": {"x-seed": "cracker"},
        "refusal": [404, "error", "not_found_error"],
        "grants": True,
    }


def _edited(module: Path, *edits: tuple[str, str]) -> str:
    text = (SOURCE / module).read_text()
    for old, new in edits:
        assert text.count(old) == 1, f"{module}: {old!r}"
        text = text.replace(old, new)
    return text
