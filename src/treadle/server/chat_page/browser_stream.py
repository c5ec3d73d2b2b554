"""The event stream of a browser: changes in the lists, and events of the runs that its tabs show.

`run_view` turns events into operations that a page only applies. A page that reconnects sends its position: a cursor
for the lists, and for each run the number of its last event.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

from treadle.core.errors import NotFound, ProtocolError
from treadle.core.events import Numbering, RunEnded
from treadle.core.json import write_json
from treadle.journal.journal_interface import RunRow
from treadle.protocols.sse import write_frame
from treadle.server.api.approval_routes import view as approval_view
from treadle.server.api.run_routes import view_of as run_view
from treadle.server.api.session_routes import view_of as session_view
from treadle.server.api.workspace_bodies import proposal_view
from treadle.server.auth.route_permissions import TREADLE
from treadle.server.chat_page.chat_page_routes import MODE, read_mode
from treadle.server.chat_page.list_changes import WINDOW, ListChanges, ReadRows, Rows
from treadle.server.chat_page.run_view import ChatRunView, Mode, Op, ending, merge
from treadle.server.http_exchange import Exchange
from treadle.server.route import EVENTS, Content, RouteGroup, text
from treadle.server.server_state import Service

RUNS_MAX = 50
WAITING_MAX = 64
"""Frames that are queued for a slow browser before their sources have to wait."""
BATCH_S = 0.04
"""The pause after a frame of a run, in which further events are batched: shorter is not visible."""

REATTACH_S = 0.5
"""How long to wait before attaching again to a run that this process lost."""

DRAIN_S = 0.5
"""How long a server that shuts down waits for the last events."""

_KEPT_ALIVE = write_frame(b"{}", "kept_alive")


async def follow(service: Service, exchange: Exchange) -> None:
    """Stream changes to a page: `runs` is a list of ID:N, `after` the id of the last event received.

    Raises: ProtocolError, NotFound.
    """
    query = exchange.query()
    mode = read_mode(query)
    watched = [(await _find(service, exchange, run_id), after) for run_id, after in read_watched(query.get("runs", ""))]
    changes = _changes(service, exchange.reach)
    await changes.refresh()
    place = changes.place(query.get("after", ""))
    await exchange.begin()
    if place is None:
        place = changes.place(changes.cursor()) or 0
        await exchange.write(write_frame(b"{}", "hello", changes.cursor()))
    frames: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MAX)
    sources = [_send_changes(changes, place, frames.put)]
    sources += [_send_run(service, run, after, mode, frames.put) for run, after in watched]
    await _write_frames(service, exchange, frames, sources)


def _changes(service: Service, key_id: str | None) -> ListChanges:
    """Return the change feed of a key, or of all keys; feeds without listeners are dropped."""
    feeds = service.changes
    if key_id not in feeds:
        for each in [name for name, feed in feeds.items() if name is not None and not feed.is_followed]:
            del feeds[each]
        feeds[key_id] = ListChanges(_topics(service, key_id), service.runtime.clock)
    return feeds[key_id]


def read_watched(text: str) -> list[tuple[str, int]]:
    """Read which runs a browser follows, and how many of their events it has.

    Raises: ProtocolError.
    """
    pairs = [pair for pair in text.split(",") if pair]
    if len(pairs) > RUNS_MAX:
        raise ProtocolError(f"At most {RUNS_MAX} runs are followed at once.", param="runs")
    found: list[tuple[str, int]] = []
    for pair in pairs:
        run_id, _, number = pair.rpartition(":")
        if not run_id or not (number.isascii() and number.isdigit() and len(number) <= 16):
            raise ProtocolError("runs is a list of ID:NUMBER with commas between.", param="runs")
        found.append((run_id, int(number)))
    return found


async def _write_frames(
    service: Service, exchange: Exchange, frames: "asyncio.Queue[bytes]", sources: Sequence[Coroutine[Any, Any, None]]
) -> None:
    """Write the sources' frames until the browser disconnects, loses its permission, or the server shuts down.

    The runs continue without it.
    """
    tasks = [asyncio.create_task(source) for source in sources]
    gone = asyncio.create_task(exchange.disconnected())
    leaving = asyncio.create_task(_leaving(service, tasks[1:]))
    refused = asyncio.create_task(service.clients.wait_until_refused(exchange))
    ends = (gone, leaving, refused)
    keep_alive_s = service.runtime.settings.server.keep_alive_s
    try:
        while not any(end.done() for end in ends):
            frame = await _next(frames, ends, keep_alive_s)
            if not refused.done():
                await exchange.write(b"".join([frame, *_take_queued(frames)]))
    finally:
        for task in (*tasks, *ends):
            task.cancel()
        await asyncio.wait((*tasks, *ends))
    if gone.cancelled():
        await exchange.end(b"".join(_take_queued(frames)) if refused.cancelled() else b"")


async def _leaving(service: Service, runs: "Sequence[asyncio.Task[None]]") -> None:
    """Wait until the server shuts down; the runs have ended by then, and their ends are still sent."""
    await service.leaving.wait()
    if runs:
        await asyncio.wait(runs, timeout=DRAIN_S)


async def _next(frames: "asyncio.Queue[bytes]", ends: "tuple[asyncio.Task[Any], ...]", keep_alive_s: float) -> bytes:
    """Return the next frame; a keep-alive after a silence, no bytes when the stream is over."""
    reading = asyncio.create_task(frames.get())
    done, _ = await asyncio.wait((reading, *ends), timeout=keep_alive_s, return_when=asyncio.FIRST_COMPLETED)
    if reading in done:
        return reading.result()
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await reading
    return b"" if done else _KEPT_ALIVE


def _take_queued(frames: "asyncio.Queue[bytes]") -> list[bytes]:
    found: list[bytes] = []
    while not frames.empty():
        found.append(frames.get_nowait())
    return found


Put = Callable[[bytes], Coroutine[Any, Any, None]]


async def _send_changes(changes: ListChanges, after: int, put: Put) -> None:
    async with aclosing(changes.follow(after)) as batches:
        async for batch in batches:
            for change in batch:
                await put(write_frame(change.data, change.topic, changes.cursor(change.number)))


async def _send_run(service: Service, run: RunRow, after: int, mode: Mode, put: Put) -> None:
    """Send a run's events after the number `after`, even if another process recovers the run."""
    while True:
        after, is_over = await _send_until_lost(service, run, after, mode, put)
        if is_over:
            return
        await asyncio.sleep(REATTACH_S)


async def _send_until_lost(service: Service, run: RunRow, after: int, mode: Mode, put: Put) -> tuple[int, bool]:
    """Send a run's events; return the number of the last one, and whether it was the end.

    Events up to `after` are only replayed into the view, not sent.
    """
    screen, numbering = ChatRunView(mode), Numbering()
    async with aclosing(service.runtime.runs.attach(run).events()) as events:
        async for batch in events:
            ops: list[Op] = []
            start = max(after, numbering.number)
            for numbered in batch:
                if not numbered.stands:
                    break
                number = numbering.take(numbered.event)
                made = screen.feed(numbered.event)
                if isinstance(numbered.event, RunEnded):
                    made.append({"op": "turn", **await _end_op(service, run.id, numbered.event)})
                if number > after:
                    ops += made
            if numbering.number > start:
                frame = {"run": run.id, "from": start, "n": numbering.number, "ops": merge(ops)}
                await put(write_frame(write_json(frame), "ops"))
                await asyncio.sleep(BATCH_S)
            if not batch[-1].stands:
                return max(after, numbering.number), False
    return numbering.number, True


async def _end_op(service: Service, run_id: str, ended: RunEnded) -> Op:
    """Return the operation that shows how a run ended and what it used; its row has been updated by then."""
    row = await service.runtime.store.find_run(run_id)
    cost = None if row is None else service.runtime.prices.cost(row.model, ended.usage)
    return {**ending(ended), "usage": ended.usage, "cost_usd": cost}


def _topics(service: Service, key_id: str | None) -> dict[str, ReadRows]:
    """Return the functions that read each list, of one key or of all keys."""
    runtime = service.runtime

    async def runs() -> Rows:
        rows = await runtime.store.list_runs(limit=WINDOW, key_id=key_id)
        asked = await runtime.store.questions([row.id for row in rows])
        return {row.id: run_view(service, row, asked.get(row.id)) for row in rows}

    async def sessions() -> Rows:
        return {row.id: session_view(row) for row in await runtime.store.list_sessions(WINDOW, key_id=key_id)}

    async def approvals() -> Rows:
        return {row.id: approval_view(row) for row in await runtime.approvals.page(WINDOW, key_id=key_id)}

    async def proposals() -> Rows:
        standings = await runtime.workspaces.of(key_id).standings(None, status=None, limit=WINDOW)
        return {each.proposal.id: proposal_view(each) for each in standings}

    return {"run": runs, "session": sessions, "approval": approvals, "proposal": proposals}


async def _find(service: Service, exchange: Exchange, run_id: str) -> RunRow:
    row = await service.runtime.store.find_run(run_id, key_id=exchange.reach)
    if row is None:
        raise NotFound(f"There is no run {run_id!r}.", param="runs")
    return row


_ROWS = RouteGroup("Runs", TREADLE)
ROUTES = (
    _ROWS.row(
        "GET",
        "/treadle/v1/live",
        follow,
        "Follow what changes, for a page",
        {200: (Content(EVENTS),)},
        query=(text("runs", "a list of ID:N"), text("after", "the id of the last event"), MODE),
    ),
)
