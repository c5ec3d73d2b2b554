"""Treadle's own API: one model call as it went over the wire, with its plan and how that differs from the one before.

What was recorded (`record` in the configuration) is shown as it was. Otherwise the request is written again from the
journalled plan, and the reply from the journalled events, by the code that writes and reads them; `is_recorded` says
which it is.
"""

import asyncio
import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError, NotFound, ProtocolError
from treadle.core.plan import Plan, plan_json
from treadle.providers.cassettes.file_format import Call, CassetteRequest, CassetteResponse, data_of, load_cassette
from treadle.providers.cassettes.recorder import recorded_file
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.resilience import GuardedModel
from treadle.runs.replay.cassette_export import export_call
from treadle.runs.views.recorded_rounds import ModelCall, read_so_far
from treadle.runtime import Runtime
from treadle.server.api.run_routes import find_run
from treadle.server.auth.route_permissions import TREADLE
from treadle.server.http_exchange import Exchange
from treadle.server.route import RouteGroup, gives
from treadle.server.server_state import Service

STAND_IN = Endpoint(name="in-process", base_url="http://in-process.invalid/v1")
"""The endpoint whose protocol is used to show calls of an in-process model, which has none."""

BODY_CHARS_MAX = 1_000_000
DIFF_LINES_MAX = 20_000
_ROUND = re.compile(r"[1-9][0-9]{0,8}")


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A request."""

    method: str
    url: str
    headers: dict[str, str]
    body: str


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """A reply: its head, all of its body, in how many pieces that came, and how it ended."""

    status: int
    headers: dict[str, str]
    body: str
    chunks: int
    how: str


class WireView(msgspec.Struct, frozen=True, kw_only=True):
    """A model call. `diff` is the unified difference of its plan to the one before, if there is one.

    `quirks` are the upstream's deviations that the request was written for.
    """

    round: int
    fingerprint: str
    upstream: str
    protocol: str
    quirks: tuple[str, ...]
    is_recorded: bool
    request: Sent
    reply: Heard | None
    plan: msgspec.Raw
    diff: str | None
    notes: list[str]


async def get(service: Service, exchange: Exchange) -> None:
    """Return one model call as it went over the wire.

    Raises: ProtocolError, NotFound; Conflict, when the plan cannot be made again.
    """
    wanted = exchange.params["round"]
    if not _ROUND.fullmatch(wanted):
        raise ProtocolError("round must be a whole number from 1.", param="round")
    number = int(wanted)
    row = await find_run(service, exchange, exchange.params["run_id"])
    calls = (await read_so_far(service.runtime.store, row)).calls
    if number > len(calls):
        raise NotFound(f"The run has {len(calls)} rounds, not {number}.", param="round")
    endpoint, name = endpoint_of(service.runtime, row.model)
    recorder = _folder(service.runtime)
    view = await asyncio.to_thread(_view, calls[:number], endpoint, name, (recorder, row.id))
    await exchange.answer_json(200, view)


def endpoint_of(runtime: Runtime, model: str) -> tuple[Endpoint, str]:
    """Return the endpoint that serves a model now and its name there; else the stand-in."""
    try:
        found = runtime.router.model_for(model)
    except NotFound:
        found = None
    return (found.first.endpoint, found.first.name) if isinstance(found, GuardedModel) else (STAND_IN, "")


def _folder(runtime: Runtime) -> Path | None:
    return Path(runtime.settings.record).expanduser() if runtime.settings.record else None


def _view(calls: Sequence[ModelCall], endpoint: Endpoint, name: str, place: tuple[Path | None, str]) -> WireView:
    """Return the view of the last call."""
    made, number = calls[-1], len(calls)
    written, notes = export_call(made, endpoint, name)
    recorded = _recorded(place, endpoint, written)
    call = recorded or written
    if recorded is None and endpoint is STAND_IN:
        notes = ["The model is in this process and speaks no protocol; this is how Chat Completions would say it."]
    is_answered = made.ending != "interrupted" or recorded is not None
    return WireView(
        round=number,
        fingerprint=made.plan.fingerprint,
        upstream=endpoint.name,
        protocol=endpoint.protocol,
        quirks=endpoint.profile(name or made.plan.model).names,
        is_recorded=recorded is not None,
        request=_sent(call.asked, endpoint),
        reply=_reply(call, call.answered) if call.answered is not None and is_answered else None,
        plan=msgspec.Raw(plan_json(made.plan)),
        diff=_difference(calls[-2].plan, made.plan) if number > 1 else None,
        notes=[] if recorded is not None else notes,
    )


def _recorded(place: tuple[Path | None, str], endpoint: Endpoint, written: Call) -> Call | None:
    """Find the recording of a call by its request; of a repeated call, the last recording."""
    folder, run_id = place
    if folder is None:
        return None
    try:
        cassette = load_cassette(recorded_file(folder, run_id, endpoint), endpoint.name)
    except ConfigError:
        return None
    return next((call for call in reversed(cassette.calls) if call.key == written.key), None)


def _sent(asked: CassetteRequest, endpoint: Endpoint) -> Sent:
    body = data_of(asked).decode("utf-8", "replace")
    return Sent(method=asked.method, url=endpoint.url(asked.path), headers=asked.headers, body=body[:BODY_CHARS_MAX])


def _reply(call: Call, answered: CassetteResponse) -> Heard:
    body = b"".join(data_of(chunk) for chunk in call.chunks).decode("utf-8", "replace")
    return Heard(
        status=answered.status,
        headers=answered.headers,
        body=body[:BODY_CHARS_MAX],
        chunks=len(call.chunks),
        how=call.ended.how,
    )


def _difference(before: Plan, after: Plan) -> str | None:
    """Return the unified diff of two plans; None if they are too long to compare."""
    left, right = (msgspec.json.format(plan_json(plan)).decode().splitlines() for plan in (before, after))
    if len(left) + len(right) > DIFF_LINES_MAX:
        return None
    lines: Iterable[str] = difflib.unified_diff(left, right, "before", "this round", lineterm="")
    return "\n".join(lines)


_ROWS = RouteGroup("Runs", TREADLE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/runs/{run_id}/rounds/{round}", get, "Show a model call as it went over the wire", gives(WireView)
    ),
)
