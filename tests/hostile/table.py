"""What a row of the table is, how the same bad thing is sent to every API, and what a refusal looks like in each."""

import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from hostile.house import MEBIBYTE, Answer, House

Comes = Literal["refused", "accepted", "repaired"]
Wrap = Callable[[bytes], bytes]


class Scene(msgspec.Struct, frozen=True):
    """What an attempt has at hand: the server, what its upstream was asked, and what its tools did."""

    house: House
    received: list[dict[str, Any]]

    def effects(self) -> list[str]:
        """Return what tools with effects have done so far."""
        ledger = self.house.folder / "ledger"
        return ledger.read_text().splitlines() if ledger.exists() else []


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One class of bad input: how it is tried here, or which tests elsewhere try it; what comes of it, and why."""

    id: str
    comes: Comes
    why: str
    tries: Callable[[Scene], None] | None = None
    tests: tuple[str, ...] = ()
    peak_bytes_max: int = 64 * MEBIBYTE
    needs_keys: bool = False


class Api(msgspec.Struct, frozen=True):
    """How one API is asked for an answer; `head` comes before what the user says and `tail` behind it."""

    path: str
    head: str
    tail: str

    def body(self, said: bytes = b'"hi"', more: bytes = b"", model: str = "good") -> bytes:
        """Write a request: what is said is JSON, and so is what more there is to the object."""
        whole = self.head.replace("MODEL", model).encode() + said + self.tail.encode()
        return whole[:-1] + b"," + more + b"}" if more else whole


APIS: dict[str, Api] = {
    "chat": Api("/v1/chat/completions", '{"model":"MODEL","messages":[{"role":"user","content":', "}]}"),
    "responses": Api("/v1/responses", '{"model":"MODEL","input":', "}"),
    "messages": Api("/v1/messages", '{"model":"MODEL","max_tokens":50,"messages":[{"role":"user","content":', "}]}"),
    "gemini": Api("/v1beta/models/MODEL:generateContent", '{"contents":[{"role":"user","parts":[{"text":', "}]}]}"),
    "treadle": Api("/treadle/v1/runs", '{"model":"MODEL","input":', "}"),
}
VENDORS = ("chat", "responses", "messages", "gemini")
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def send(scene: Scene, api: str, body: bytes, model: str = "good", **headers: str) -> Answer:
    """Post a body to an API."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return scene.house.ask("POST", APIS[api].path.replace("MODEL", model), body, named)


def check_refusal(api: str, answer: Answer, status: int, code: str = "", field: str | None = None) -> None:
    """Assert that this is an error as that API writes it, with this code where it has a place for one."""
    shown = f"{api}: {answer.status} {answer.text[:500]}"
    assert answer.status == status, shown
    assert answer.headers["content-type"].startswith("application/json"), shown
    error = answer.json["error"]
    assert isinstance(error["message"], str), shown
    assert error["message"], shown
    if api == "messages":
        assert (answer.json["type"], error["type"]) == ("error", _ANTHROPIC.get(status, "invalid_request_error")), shown
    elif api == "gemini":
        assert (error["code"], error["status"].isupper()) == (status, True), shown
        assert all(detail["@type"].endswith("RetryInfo") for detail in error["details"]), shown
    else:
        own = {"code", "message", "hint", "param"}
        assert set(error) == (own if api == "treadle" else {"message", "type", "param", "code"}), shown
        assert not code or error["code"] == code, shown
        assert field is None or error["param"] == field, shown
    assert field is None or api not in ("messages", "gemini") or field in error["message"], shown


def refused(
    make: Callable[[Api], bytes], status: int, code: str, *, field: str | None = None, apis: tuple[str, ...] = ()
) -> Callable[[Scene], None]:
    """Return the attempt that sends something to every API and is refused by each in its own way."""

    def tries(scene: Scene) -> None:
        before = len(scene.received)
        for name in apis or tuple(APIS):
            check_refusal(name, send(scene, name, make(APIS[name])), status, code, field)
        assert len(scene.received) == before, "the upstream was asked"

    return tries


def accepted(
    make: Callable[[Api], bytes],
    *,
    heard: Callable[[dict[str, Any]], bool] = lambda asked: True,
    apis: tuple[str, ...] = VENDORS,
) -> Callable[[Scene], None]:
    """Return the attempt that every API answers well, after the upstream heard what it should."""

    def tries(scene: Scene) -> None:
        for name in apis:
            answer = send(scene, name, make(APIS[name]))
            assert answer.status == 200, f"{name}: {answer.status} {answer.text[:500]}"
            assert "All is well." in answer.text, name
            assert heard(scene.received[-1]), f"{name}: {json.dumps(scene.received[-1])[:500]}"

    return tries


def several(*attempts: Callable[[Scene], None]) -> Callable[[Scene], None]:
    """Return the attempt that makes all of these."""

    def tries(scene: Scene) -> None:
        for attempt in attempts:
            attempt(scene)

    return tries
