"""Every failure of the store through every API: a client is told what it may do, and never where anything is."""

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from treadle.core.errors import STORE_MESSAGES, StoreError
from treadle.runs.run_service import Runs
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.visit import JSON_TYPE, LOCAL, Visit

SECRETS = ("db.internal", ":6543", "me@", "customers", "/srv/data/treadle.db", "hunter2")
MESSAGE = "the store postgresql://me@db.internal:6543/customers: it failed (/srv/data/treadle.db, hunter2)"
HINT = "look at /srv/data/treadle.db on db.internal"
LASTING = {"store_corrupt", "store_replaced", "store_not_a_database", "store_pooled"}
STARTS = {
    "store_too_new",
    "store_too_old",
    "store_schema_changed",
    "store_foreign",
    "store_wrong_encoding",
    "store_no_wal",
}
TOOLS = {"store_not_installed", "store_no_program", "store_in_use", "store_backup", "backup_failed", "backup_exists"}
ASKED: dict[str, dict[str, Any] | None] = {
    "POST /v1/chat/completions": {"model": "demo", "messages": [{"role": "user", "content": "hi"}]},
    "POST /v1/responses": {"model": "demo", "input": "hi"},
    "POST /v1/messages": {"model": "demo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    "POST /v1beta/models/demo:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "POST /treadle/v1/runs": {"input": "hi"},
    "GET /v1/responses/resp_1": None,
    "POST /v1/responses/resp_1/cancel": None,
    "GET /v1/conversations/conv_1": None,
    "GET /treadle/v1/runs": None,
    "GET /treadle/v1/runs/run_1": None,
    "GET /treadle/v1/sessions": None,
    "GET /treadle/v1/approvals": None,
    "GET /treadle/v1/workspaces": None,
    "GET /treadle/v1/proposals": None,
}


def _fail(code: str) -> Callable[..., Awaitable[Any]]:
    async def fail(*args: object, **named: object) -> Any:
        raise StoreError(MESSAGE, code=code, hint=HINT)

    return fail


class Broken:
    """A store of which every call fails with one code, whatever it is."""

    def __init__(self, inner: Any, code: str) -> None:
        self._inner = inner
        self._code = code

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("path", "queued", "stats"):
            return found
        return _fail(self._code) if callable(found) else Broken(found, self._code)


async def _ask(app: App, name: str) -> Visit:
    method, path = name.split(" ")
    body = ASKED[name]
    headers = [LOCAL, JSON_TYPE] if body is not None else [LOCAL]
    return await Visit(
        app, method, path, headers=headers, body=b"" if body is None else msgspec.json.encode(body)
    ).run()


@pytest.mark.parametrize("code", sorted(STORE_MESSAGES))
async def test_no_client_learns_where_the_store_is(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Status, words and when to come back are those of the code, in every API's own envelope."""
    async with open_app() as app:
        runtime = app.service.runtime
        broken = Broken(runtime.store, code)
        kept = runtime.store
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "store", broken)
            patch.setattr(Runs, "start", _fail(code))
            patch.setattr(Runs, "cancel", _fail(code))
            for owner in (app.service.runtime.approvals, app.service.runtime.workspaces):
                patch.setattr(owner, "_store", broken)
            wrong: list[str] = []
            for name in ASKED:
                visit = await _ask(app, name)
                told = visit.body.decode()
                retry = visit.headers.get("retry-after")
                wanted = None if code in LASTING else "1"
                is_said = STORE_MESSAGES[code] in told
                leaked = [word for word in SECRETS if word in told]
                if (visit.status, is_said, retry, leaked) != (503, True, wanted, []):
                    wrong.append(f"{name}: {visit.status} {retry} {told}")
            assert wrong == []
            assert runtime.store is broken
        assert runtime.store is kept


def test_every_code_has_words_for_clients() -> None:
    """A code of the store that is not in the table can be met only at a start or by a command."""
    codes: set[str] = set()
    for file in Path(treadle.__file__).parent.rglob("*.py"):
        if file.name == "backup.py":
            continue  # what commands say of files
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("store_"):
                codes.add(node.value)
    known = {*STORE_MESSAGES, *STARTS, *TOOLS}
    codes -= {"store_true", "store_failure"}  # a word of argparse's, and the name of an ending
    assert {code for code in codes if code.replace("_", "").isalpha()} - known == set()
