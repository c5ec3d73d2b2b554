"""Treadle's own API: forks, replays and exports stored runs."""

import msgspec

from treadle.core.errors import NotFound, ProtocolError
from treadle.http.asgi import Header
from treadle.journal.journal_interface import RunRow
from treadle.journal.jsonl_export import write_run
from treadle.journal.session_operations import chain_of
from treadle.providers.cassettes.file_format import write_cassette
from treadle.runs import RunHandle
from treadle.runs.replay.cassette_export import export_run
from treadle.runs.replay.replay_run import Proof
from treadle.runs.views.recorded_rounds import read_run
from treadle.server.api.run_routes import RunView, acting, find_run, view_of
from treadle.server.api.wire_view_routes import endpoint_of
from treadle.server.auth.route_permissions import PREPARE, TREADLE
from treadle.server.http_exchange import Exchange, read_body
from treadle.server.route import ANY, JOURNAL, Content, RouteGroup, gives, one_of
from treadle.server.run_response import read
from treadle.server.server_state import Service


class RunFork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/fork: just before which round, and with which model if not the same."""

    round: int = 1
    model: str | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST …/replay: whether the tools really run again, in a new run."""

    live_tools: bool = False


async def fork(service: Service, exchange: Exchange) -> None:
    """Start a new run that continues from just before a round.

    Raises: ProtocolError, NotFound, RequestError for a round that the run does not have.
    """
    wanted = await read(await service.body(exchange) or b"{}", lambda body: read_body(body, RunFork))
    row = await find_run(service, exchange, exchange.params["run_id"])
    await service.admit(acting(exchange, row), wanted.model or row.model)
    handle = await service.runtime.runs.fork(
        row, round_number=wanted.round, model=wanted.model or None, allowed=exchange.client.tools
    )
    await _answer_started(service, exchange, handle)


async def replay(service: Service, exchange: Exchange) -> None:
    """Replay a run from its journal and compare, or run it again for real.

    Raises: ProtocolError, NotFound, RequestError for a run that has not ended or whose content is gone.
    """
    wanted = await read(await service.body(exchange) or b"{}", lambda body: read_body(body, Replay))
    row = await find_run(service, exchange, exchange.params["run_id"])
    if wanted.live_tools:
        exchange.client.check_decides("Running tools again")
        await service.admit(acting(exchange, row))
        handle = await service.runtime.runs.rerun_tools(row, allowed=exchange.client.tools)
        await _answer_started(service, exchange, handle)
        return
    proof = await service.runtime.runs.verify_replay(row)
    await exchange.answer_json(200, {"run": row.id, "is_same": proof.is_same, **msgspec.structs.asdict(proof)})


async def export(service: Service, exchange: Exchange) -> None:
    """Export a run as its journal (jsonl), as a cassette, or as a scenario.

    Raises: ProtocolError, NotFound; Conflict for a run that has not ended.
    """
    form = exchange.query().get("format", "jsonl")
    if form not in _FORMS:
        raise ProtocolError(f"format must be one of {', '.join(_FORMS)}.", param="format")
    row = await find_run(service, exchange, exchange.params["run_id"])
    suffix, content_type, write = _FORMS[form]
    data = await write(service, row)
    await exchange.answer(200, data, content_type, (_attachment(row, suffix),))


async def _journal(service: Service, row: RunRow) -> bytes:
    return b"".join(write_run(await service.runtime.store.evidence(row.id)))


async def _cassette(service: Service, row: RunRow) -> bytes:
    endpoint, name = endpoint_of(service.runtime, row.model)
    return write_cassette(export_run(await read_run(service.runtime.store, row), endpoint, name).cassette)


async def _scenario(service: Service, row: RunRow) -> bytes:
    if service.write_scenario is None:
        raise NotFound("This server writes no scenarios.", param="format", hint="treadle export RUN --scenario FILE")
    store = service.runtime.store
    runs = [await read_run(store, each) for each in reversed(await chain_of(store, row.id))]
    return service.write_scenario(runs).encode()


_FORMS = {
    "jsonl": ("jsonl", b"application/x-ndjson", _journal),
    "cassette": ("cassette.jsonl", b"application/x-ndjson", _cassette),
    "scenario": ("toml", b"application/toml; charset=utf-8", _scenario),
}


async def _answer_started(service: Service, exchange: Exchange, handle: RunHandle) -> None:
    row = await find_run(service, exchange, handle.run_id)
    location = (b"location", f"/treadle/v1/runs/{row.id}".encode())
    await exchange.answer_json(201, view_of(service, row), (location,))


def _attachment(row: RunRow, suffix: str) -> Header:
    return (b"content-disposition", f'attachment; filename="{row.id}.{suffix}"'.encode())


_ROWS = RouteGroup("Runs", TREADLE)
_PREPARE = RouteGroup("Runs", PREPARE)
ROUTES = (
    _PREPARE.post(
        "/treadle/v1/runs/{run_id}/fork",
        fork,
        "Go on from just before a round, as a new run",
        gives(RunView, 201),
        body=RunFork,
        needs_body=False,
    ),
    _PREPARE.post(
        "/treadle/v1/runs/{run_id}/replay",
        replay,
        "Drive a run again and say whether it is the same; or run it anew",
        {**gives({"anyOf": [Proof, ANY]}), **gives(RunView, 201)},
        body=Replay,
        needs_body=False,
    ),
    _ROWS.row(
        "GET",
        "/treadle/v1/runs/{run_id}/export",
        export,
        "Export a run",
        {200: (JOURNAL, Content("application/toml"))},
        query=(one_of("format", "as what", "jsonl", "cassette", "scenario"),),
    ),
)
