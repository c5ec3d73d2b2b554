"""`python -m bench.measures.codecs`: CPU of one event in each codec and of the scanner for calls in text, in process.

A run of a thousand deltas is written in every client protocol, and what was written is read again as if an upstream had
said it. Every figure stands beside `json.loads` and `json.dumps` of the same events, so that it can be compared between
machines. Then whole requests with a long history: read and written again.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from bench.report.figures import MICRO, Table, ratio, spread
from bench.report.results import Options, Result, main_of
from treadle.config import Settings, StoreSection
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, RunEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import MessageItem, TextPart
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.text_calls.text_call_recovery import RepairRules, Scanner
from treadle.runtime import Parts, Runtime

DELTAS = 1_000
WORDS = ("The ", "quick ", "brown ", "fox ", "jumps ", "over ", "it.\n", "And ", "so ", "on, ")
READ_BYTES = 65_536
TURNS = (10, 400)
Body = Callable[[int], dict[str, Any]]
BODIES: dict[str, Body] = {
    "chat": lambda turns: {"model": "m", "messages": [_said(number) for number in range(turns)]},
    "messages": lambda turns: {"model": "m", "max_tokens": 99, "messages": [_said(number) for number in range(turns)]},
    "responses": lambda turns: {"model": "m", "input": [_said(number) for number in range(turns)]},
    "gemini": lambda turns: {"contents": [_shown(number) for number in range(turns)]},
}
WITH_CALLS: dict[str, Body] = {
    "chat": lambda turns: {"model": "m", "messages": _worked(turns, _chat_round)},
    "messages": lambda turns: {"model": "m", "max_tokens": 99, "messages": _worked(turns, _messages_round)},
    "responses": lambda turns: {"model": "m", "input": _worked(turns, _responses_round)},
}
"""Histories of work: of every four turns one asks, one calls a tool, one has its result, and one answers."""

Work = Callable[[], object]


class Case(NamedTuple):
    """Something to time: its group, what it does, how many units that is, and the same in plain JSON."""

    group: str
    name: str
    units: int
    work: Work
    plain: Work


class Words:
    """A model that says a thousand words."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Say them."""
        said = [WORDS[number % len(WORDS)] for number in range(DELTAS)]
        yield [ItemAdded(index=0, item=MessageItem(role="assistant"))]
        yield [TextDelta(index=0, text=word) for word in said]
        whole = MessageItem(role="assistant", content=(TextPart(text="".join(said)),))
        yield [ItemDone(index=0, item=whole), Finished(stop="done")]


async def events() -> list[RunEvent]:
    """Return what a real run tells."""
    settings = Settings(store=StoreSection(persistence="off"))
    async with Runtime(settings, parts=Parts(env={}, models={"words": Words()})) as runtime:
        return [event async for event in runtime.run("go", model="words")]


def _said(number: int) -> dict[str, str]:
    return {"role": "assistant" if number % 2 else "user", "content": "".join(WORDS) * 5}


def _shown(number: int) -> dict[str, Any]:
    return {"role": "model" if number % 2 else "user", "parts": [{"text": "".join(WORDS) * 5}]}


def _worked(turns: int, make: Callable[[str, str], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    text = "".join(WORDS) * 5
    return [turn for number in range(turns // 4) for turn in make(f"call_{number}", text)]


def _chat_round(call_id: str, text: str) -> list[dict[str, Any]]:
    call = {"id": call_id, "type": "function", "function": {"name": "look", "arguments": '{"path":"a/b.txt"}'}}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
        {"role": "assistant", "content": text},
    ]


def _messages_round(call_id: str, text: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": call_id, "name": "look", "input": {"path": "a/b.txt"}}
    return [
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]},
        {"role": "assistant", "content": [{"type": "text", "text": text}]},
    ]


def _responses_round(call_id: str, text: str) -> list[dict[str, Any]]:
    return [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
        {"type": "function_call", "call_id": call_id, "name": "look", "arguments": '{"path":"a/b.txt"}'},
        {"type": "function_call_output", "call_id": call_id, "output": text},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
    ]


def encode_case(name: str, told: list[RunEvent]) -> tuple[Case, bytes]:
    """Return the case of writing a run in a protocol, and what is written."""
    protocol = PROTOCOLS[name]
    request = Request(protocol=name, model="m", surface=Surface(stream=True))

    def encode() -> bytes:
        encoder = protocol.codec.encoder(request, CountingIds(namespace="b"))
        return b"".join(frame for event in told for frame in encoder.feed(event))

    written = encode()
    values = [json.loads(line[6:]) for line in written.split(b"\n") if line.startswith(b"data: {")]
    return Case("write", name, DELTAS, encode, lambda: [json.dumps(value) for value in values]), written


def decode_case(name: str, written: bytes) -> Case:
    """Return the case of reading what an upstream of this protocol says."""
    cuts = [written[at : at + READ_BYTES] for at in range(0, len(written), READ_BYTES)]
    lines = [line[6:] for line in written.split(b"\n") if line.startswith(b"data: {")]

    def decode() -> list[ModelEvent]:
        decoder = PROTOCOLS[name].codec.decoder(CountingIds(namespace="b"))
        found = [event for cut in cuts for event in decoder.feed(cut)]
        return [*found, *decoder.finish()]

    said = sum(isinstance(event, TextDelta) for event in decode())
    if said != DELTAS:
        raise SystemExit(f"bench: the {name} decoder found {said} of {DELTAS} deltas")
    return Case("read", name, DELTAS, decode, lambda: [json.loads(line) for line in lines])


def scan_case() -> Case:
    """Return the case of looking for calls in ordinary text."""
    told = [TextDelta(index=0, text=WORDS[number % len(WORDS)]) for number in range(DELTAS)]
    data = [json.dumps({"delta": event.text}) for event in told]
    plan = Plan(items=(), model="m", tools=(ToolSpec(name="look"),))

    def scan() -> None:
        scanner = Scanner(plan, RepairRules())
        scanner.feed(ItemAdded(index=0, item=MessageItem(role="assistant")))
        for event in told:
            scanner.feed(event)
        scanner.feed(Finished(stop="done"))

    return Case("scan", "calls in text", DELTAS, scan, lambda: [json.loads(each) for each in data])


def request_cases() -> list[Case]:
    """Return the cases of reading a request and of writing it again, at two lengths of history, and one with calls."""
    bodies = [(name, f"{turns} turns", body(turns)) for name, body in BODIES.items() for turns in TURNS]
    bodies += [(name, f"with calls, {TURNS[-1]} turns", body(TURNS[-1])) for name, body in WITH_CALLS.items()]
    cases: list[Case] = []
    for name, length, body in bodies:
        data = json.dumps(body).encode()

        def both(name: str = name, data: bytes = data) -> bytes:
            asked = PROTOCOLS[name].codec.read_request(data)
            return PROTOCOLS[name].codec.write_request(Plan(items=asked.items, model="m")).body

        title = f"{name}, {length}, {len(data) / 1024:.0f} KB"
        cases.append(Case("request", title, 1, both, lambda data=data: json.dumps(json.loads(data))))
    return cases


def cpu_of(work: Work, times: int) -> float:
    """Return the CPU seconds of one time."""
    before = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - before) / times


def measure(options: Options) -> Result:
    """Measure all cases in turns."""
    rounds, budget_s = (3, 0.02) if options.is_quick else (11, 0.05)
    told = asyncio.run(events())
    cases: list[Case] = []
    for name in PROTOCOLS:
        case, written = encode_case(name, told)
        cases += [case, decode_case(name, written)]
    cases += [scan_case(), *request_cases()]
    times = {case.name + case.group: max(1, round(budget_s / max(cpu_of(case.work, 2), 1e-6))) for case in cases}
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {(case.group, case.name): [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            count = times[case.name + case.group]
            own, plain = cpu_of(case.work, count), cpu_of(case.plain, count)
            seen[case.group, case.name].append((own / case.units, plain / case.units))
    return report(seen, rounds)


def report(seen: dict[tuple[str, str], list[tuple[float, float]]], rounds: int) -> Result:
    """Make the tables."""

    def cells(group: str, name: str) -> list[str]:
        own, plain = ([each[at] for each in seen[group, name]] for at in (0, 1))
        return [f"{spread(own).times(MICRO):.1f}", f"{ratio(own, plain).middle:.2f}"]

    codecs = [[name, *cells("read", name), *cells("write", name)] for name in PROTOCOLS]
    others = [[name, *cells(group, name)] for group, name in seen if group in ("scan", "request")]
    tables = [
        Table(
            "Codecs, one event",
            ["protocol", "read µs", "× json.loads", "write µs", "× json.dumps"],
            codecs,
        ),
        Table("Scanner, one delta; requests, read and written again", ["", "CPU µs", "× json"], others),
    ]
    figures = {f"{group} {name}": found for (group, name), found in seen.items()}
    return Result("codecs", f"process CPU, median [quartiles] of {rounds} rounds in turns", tables, [], figures)


if __name__ == "__main__":
    main_of(measure, __doc__)
