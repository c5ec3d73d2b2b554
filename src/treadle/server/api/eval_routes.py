"""Treadle's own API: the evaluations on this machine, read from the folders that `treadle eval` writes.

Only what lies in the configured folder is read, by names that are found there; nothing is played or graded here.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import NotFound, ProtocolError
from treadle.core.journal_entries import Entry
from treadle.runs.views.trace_tree import Trace, trace_of
from treadle.server.auth.route_permissions import OPERATE
from treadle.server.http_exchange import Exchange, read_number
from treadle.server.route import BEFORE, FLAG, LIMIT, RouteGroup, fields, gives, listed
from treadle.server.server_state import Service

RUN = "run.json"
SAMPLES = "samples.jsonl"
TRANSCRIPTS = "transcripts"
RUNS_MAX = 10_000
"""How many folders are listed; only those of a page are read completely."""

PAGE_MAX = 200
CACHED_MAX = 1_024
"""How many files' totals are cached: each is computed again only when its file changes."""

FILE_BYTES_MAX = 67_108_864
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one grader says."""

    grader: str
    passed: bool
    reason: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One play of one scenario, as it was graded."""

    key: str
    scenario: str
    outcome: str
    model: str = "script"
    strategy: str = "offline"
    trial: int = 1
    title: str = ""
    protocol: str = ""
    chunk_bytes: int | None = None
    reason: str = ""
    verdicts: tuple[Verdict, ...] = ()
    calls: int = 0
    rounds: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    duration_s: float = 0.0
    quirks: dict[str, int] = {}


class EvalRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of scenarios: what it was, and how many samples came to what."""

    id: str
    name: str = ""
    mode: str = "offline"
    started_at: float = 0.0
    models: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    trials: int = 1
    grader_version: int = 0
    fingerprints: dict[str, str] = {}
    scenario_fingerprints: dict[str, str] = {}
    outcomes: dict[str, int] = {}
    cost_usd: float | None = None


class EvalDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its samples."""

    run: EvalRun
    samples: list[Sample]


class SampleDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A sample and what happened in it: its runs as trees, and the world before and after."""

    sample: Sample
    runs: list[Trace]
    before: Any = None
    after: Any = None
    mismatches: tuple[str, ...] = ()


class _Played(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...] = ()


class _Transcript(msgspec.Struct, frozen=True):
    runs: tuple[_Played, ...] = ()


class _Evidence(msgspec.Struct, frozen=True):
    transcript: _Transcript = _Transcript()
    before: Any = None
    after: Any = None
    mismatches: tuple[str, ...] = ()


Counted = tuple[Counter[str], float | None]
"""How many samples had each outcome, and their total cost."""
Stamp = tuple[int, int]


async def index(service: Service, exchange: Exchange) -> None:
    """Return a page of the evaluation runs in the configured folder, newest first. Raises: ProtocolError."""
    query = exchange.query()
    limit = read_number(query, "limit", default=50, least=1, most=PAGE_MAX)
    runs, has_more = await asyncio.to_thread(_page, service, limit, query.get("before"))
    await exchange.answer_json(200, {"runs": runs, "has_more": has_more})


def _page(service: Service, limit: int, before: str | None) -> tuple[list[EvalRun], bool]:
    """Return a page of the runs with their totals, and whether there are more.

    Raises: ProtocolError.
    """
    found = [(_head(folder), folder) for folder in _folders(service)]
    found.sort(key=lambda pair: (pair[0].started_at, pair[0].id), reverse=True)
    if before is not None:
        place = next((number for number, (head, _) in enumerate(found, 1) if head.id == before), None)
        if place is None:
            raise ProtocolError(f"before names no run of scenarios: {before[:200]!r}.", param="before")
        found = found[place:]
    return [_summed(head, _count(folder)) for head, folder in found[:limit]], len(found) > limit


async def get(service: Service, exchange: Exchange) -> None:
    """Return an evaluation run with its samples. Raises: NotFound."""
    folder = await asyncio.to_thread(_find, service, exchange.params["run"])
    samples = await asyncio.to_thread(_samples, folder)
    run = _summed(await asyncio.to_thread(_head, folder), counted(samples))
    await exchange.answer_json(200, EvalDetail(run=run, samples=samples))


async def sample(service: Service, exchange: Exchange) -> None:
    """Return a sample with its transcript. Raises: NotFound."""
    folder = await asyncio.to_thread(_find, service, exchange.params["run"])
    key = exchange.params["key"]
    samples = await asyncio.to_thread(_samples, folder)
    found = next((each for each in samples if each.key == key), None)
    if found is None:
        raise NotFound(f"The run has no sample {key[:200]!r}.", param="key")
    evidence = await asyncio.to_thread(_evidence, folder, key)
    cost = service.runtime.prices.cost
    detail = SampleDetail(
        sample=found,
        runs=[trace_of(played.entries, cost) for played in evidence.transcript.runs],
        before=evidence.before,
        after=evidence.after,
        mismatches=evidence.mismatches,
    )
    await exchange.answer_json(200, detail)


def _folders(service: Service) -> Iterator[Path]:
    """Yield the folders that contain a run, newest first: their names begin with a time."""
    root = Path(service.runtime.settings.server.evals).expanduser()
    try:
        names = sorted((each for each in root.iterdir() if (each / RUN).is_file()), reverse=True)
    except OSError:
        return
    yield from names[:RUNS_MAX]


def _find(service: Service, name: str) -> Path:
    found = next((each for each in _folders(service) if each.name == name), None)
    if found is None:
        raise NotFound(f"There is no run of scenarios {name!r}.", hint="GET /treadle/v1/evals lists them.")
    return found


def _head(folder: Path) -> EvalRun:
    """Read a run's description; an unreadable file leaves its fields empty."""
    file = folder / RUN
    return _head_of(file, _stamp(file))


@lru_cache(CACHED_MAX)
def _head_of(file: Path, stamp: Stamp) -> EvalRun:
    fields: dict[str, Any] = {"id": file.parent.name}
    try:
        given: Any = msgspec.json.decode(_read(file))
        names = set(EvalRun.__struct_fields__) - {"id", "outcomes", "cost_usd"}
        fields |= {name: given[name] for name in names if name in given}
        return msgspec.convert(fields, EvalRun)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return EvalRun(id=file.parent.name)


def _count(folder: Path) -> Counted:
    file = folder / SAMPLES
    return _count_of(file, _stamp(file))


@lru_cache(CACHED_MAX)
def _count_of(file: Path, stamp: Stamp) -> Counted:
    return counted(_samples(file.parent))


def counted(samples: Sequence[Sample]) -> Counted:
    """Count samples by outcome, and sum their cost."""
    costs = [each.cost_usd for each in samples if each.cost_usd is not None]
    return Counter(each.outcome for each in samples), sum(costs) if costs else None


def _summed(run: EvalRun, count: Counted) -> EvalRun:
    return msgspec.structs.replace(run, outcomes=dict(count[0]), cost_usd=count[1])


def _stamp(file: Path) -> Stamp:
    """Return the values by which a change of a file is detected."""
    try:
        found = file.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def _samples(folder: Path) -> list[Sample]:
    """Read the samples; lines that are cut off or of another version are skipped."""
    found: list[Sample] = []
    for line in _read(folder / SAMPLES).splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Sample))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found


def _evidence(folder: Path, key: str) -> _Evidence:
    data = _read(folder / TRANSCRIPTS / f"{_ODD.sub('_', key)}.json")
    try:
        return msgspec.json.decode(data, type=_Evidence) if data else _Evidence()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Evidence()


def _read(file: Path) -> bytes:
    """Return a file's content within bounds; no bytes if it is missing."""
    try:
        return file.read_bytes() if file.stat().st_size <= FILE_BYTES_MAX else b""
    except OSError:
        return b""


_ROWS = RouteGroup("Evals", OPERATE)
ROUTES = (
    _ROWS.get(
        "/treadle/v1/evals",
        index,
        "List the runs of scenarios, newest first",
        gives(fields(runs=listed(EvalRun), has_more=FLAG)),
        query=(LIMIT, BEFORE),
    ),
    _ROWS.get("/treadle/v1/evals/{run}", get, "Show a run of scenarios with its samples", gives(EvalDetail)),
    _ROWS.get(
        "/treadle/v1/evals/{run}/samples/{key*}", sample, "Show a sample with its transcript", gives(SampleDetail)
    ),
)
