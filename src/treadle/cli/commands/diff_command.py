"""`treadle diff`: compare two runs entry by entry, ignoring ids and times.

Calls are known by their order, because their ids are drawn anew in every run. What remains is what a reader would
call the run: what was asked, each model call with its surface and reply, calls, arguments, results, and the end.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem, ResultItem, text_of
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.json import canonical_json, cut_text, type_errors
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean
from treadle.terminal.rendering.styles import TextStyle, detect_style

if TYPE_CHECKING:
    from treadle.journal.journal_interface import RunRow, Store

EPILOG = """\
Ids and times never count; hashes of plans are shown, and differ with the ids of calls. `last` is the newest run.

examples:
  treadle diff RUN RUN
  treadle diff RUN last --json

exit codes: 0 they are equal, 1 they differ"""

SHOWN_BYTES_MAX = 600
EQUAL_SHOWN = 2
"""How many equal steps are shown around a difference."""

_NOT_ASKED = frozenset({"protocol", "model", "surface", "previous_response_id", "items"})
"""Request fields that are compared elsewhere, or only affect how the answer was delivered."""

Op = Literal["equal", "changed", "left", "right"]


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a run: the key it is compared by, and the text that is shown."""

    kind: str
    key: bytes
    text: str
    seq: int = 0
    fingerprint: str = ""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the left run, the matching step of the right run, or both."""

    op: Op
    left: DiffStep | None = None
    right: DiffStep | None = None


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("left", metavar="RUN", help="the id of a run or response, or `last`")
    parser.add_argument("right", metavar="RUN", help="the one to compare it with")
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Compare two runs, print the differences, and return 1 if there are any."""
    left, right, pairs = opened.with_store(args, lambda store: _compare(store, args))
    is_equal = all(pair.op == "equal" for pair in pairs)
    if args.json:
        document = {"equal": is_equal, "left": left, "right": right, "steps": [_shown(pair) for pair in pairs]}
        command.print_json(document)
    else:
        text_style = detect_style(sys.stdout, os.environ)
        for line in write_pairs(pairs, text_style):
            print(line)
        count = sum(pair.op != "equal" for pair in pairs)
        print(f"{left} and {right} " + ("are equal" if is_equal else f"differ in {plural(count, 'place')}"))
    return command.OK if is_equal else command.ERROR


async def _compare(store: "Store", args: argparse.Namespace) -> tuple[str, str, list[Pair]]:
    rows = [await opened.find_run(store, name) for name in (args.left, args.right)]
    steps = [steps_of(row, await store.entries(row.id)) for row in rows]
    return rows[0].id, rows[1].id, compare(steps[0], steps[1])


def compare(left: Sequence[DiffStep], right: Sequence[DiffStep]) -> list[Pair]:
    """Pair the steps of two runs: equal ones, changed ones of the same kind, and those that only one run has."""
    keys = [[(step.kind, step.key) for step in side] for side in (left, right)]
    pairs: list[Pair] = []
    for op, a, b, c, d in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if op == "equal":
            pairs += [Pair(op="equal", left=x, right=y) for x, y in zip(left[a:b], right[c:d], strict=True)]
        else:
            pairs += _changed(left[a:b], right[c:d])
    return pairs


def _changed(left: Sequence[DiffStep], right: Sequence[DiffStep]) -> Iterator[Pair]:
    """Pair the steps between two equal ones by kind, in order."""
    kinds = [[step.kind for step in side] for side in (left, right)]
    for op, a, b, c, d in SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_opcodes():
        if op == "equal":
            yield from (Pair(op="changed", left=x, right=y) for x, y in zip(left[a:b], right[c:d], strict=True))
        else:
            yield from (Pair(op="left", left=step) for step in left[a:b])
            yield from (Pair(op="right", right=step) for step in right[c:d])


def steps_of(row: "RunRow", entries: Sequence[Entry]) -> list[DiffStep]:
    """Return what happened in a run as steps that can be compared."""
    asked = {"protocol": row.protocol, "model": row.model, "request": _request(row)}
    steps = [DiffStep(kind="asked", key=canonical_json(asked), text=_asked_text(row, asked["request"]))]
    numbers: dict[str, int] = {}
    for entry in entries:
        steps += _steps(entry, numbers)
    return steps


def _request(row: "RunRow") -> Any:
    """Return the request's settings besides its input, without those that only affect delivery."""
    request: Any = {} if row.request is None else msgspec.json.decode(row.request)
    return {key: value for key, value in request.items() if key not in _NOT_ASKED}


def _asked_text(row: "RunRow", request: Any) -> str:
    instructions = request.get("instructions")
    extra = f" · instructions {instructions!r}" if instructions else ""
    return f"{row.model} over {row.protocol}{extra}"


def _steps(entry: Entry, numbers: dict[str, int]) -> Iterable[DiffStep]:
    try:
        if entry.kind in ITEM_KINDS:
            return [_item_step(entry, item_of_entry(entry), numbers)]
        return _other_steps(entry)
    except type_errors:
        raw = b"" if entry.data is None else bytes(entry.data)
        return [DiffStep(kind=entry.kind, key=raw, text="cannot be read", seq=entry.seq)]


def _item_step(entry: Entry, item: AnyItem, numbers: dict[str, int]) -> DiffStep:
    """Compare an item by its content; a call by its position in the run instead of its id."""
    bare: dict[str, Any] = msgspec.to_builtins(item, enc_hook=_plain)
    for name in ("id", "upstream_id"):
        bare.pop(name, None)
    if isinstance(item, CallItem | ResultItem):
        bare["call_id"] = numbers.setdefault(item.call_id, len(numbers) + 1)
    if isinstance(item, ResultItem):
        bare["sandbox"] = sandbox_of(entry)
    kind = f"input {entry.kind}" if entry.is_input else entry.kind
    return DiffStep(kind=kind, key=canonical_json(bare), text=_item_text(item, entry), seq=entry.seq)


def _plain(value: object) -> Any:
    """Parse JSON that is stored as text, so that it is compared by value."""
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise NotImplementedError


def _item_text(item: AnyItem, entry: Entry) -> str:
    match item:
        case MessageItem():
            return text_of(item.content) or "(nothing said)"
        case ReasoningItem():
            return "\n".join(item.summary or item.text) or "(hidden)"
        case CallItem():
            return f"{item.name}({item.arguments})"
        case ResultItem():
            where = sandbox_of(entry)
            return f"{item.name} {item.rc}{f' [{where}]' if where else ''}: {text_of(item.output)}"
        case _:
            return entry.content or "(kept unread)"


def sandbox_of(entry: Entry) -> str:
    """Return where the tool of a result ran, one of SANDBOXES; empty when none did."""
    return msgspec.json.decode(entry.data or b"{}", type=_SandboxField).sandbox


class _SandboxField(msgspec.Struct):
    sandbox: str = ""


def _other_steps(entry: Entry) -> list[DiffStep]:
    data: Any = {} if entry.data is None else msgspec.json.decode(entry.data)
    match entry.kind:
        case "plan":
            names = ("round", "final", "items", "tools", "tools_sha256", "tool_choice")
            compared = {"model": entry.name, **{name: data.get(name) for name in names}}
            text = f"round {compared['round']} · {compared['items']} items · {compared['tools']} tools"
            text += " · last answer" if compared["final"] else ""
        case "reply":
            error: Any = data.get("error") or {}
            compared = {"ending": data.get("ending"), "stop": data.get("stop"), "error": error.get("code")}
            text = " ".join(str(value) for value in compared.values() if value)
        case "note":
            compared, text = data, entry.content or ""
        case "frame":
            compared, text = data, f"{plural(len(data.get('offers', ())), 'tool')} offered"
        case "void":
            compared, text = {"round": data.get("round")}, f"round {data.get('round')} was cut off and asked again"
        case "status" if data.get("type") == "run.ended":
            error = data.get("error") or {}
            compared = {name: data.get(name) for name in ("status", "stop", "limit", "rounds", "calls")}
            compared["error"] = error.get("code")
            text = " · ".join(str(compared[name]) for name in ("status", "limit", "error") if compared[name])
        case _:
            return []
    kind = "end" if entry.kind == "status" else entry.kind
    fingerprint = str(data.get("fingerprint", "")) if entry.kind == "plan" else ""
    return [DiffStep(kind=kind, key=canonical_json(compared), text=text, seq=entry.seq, fingerprint=fingerprint)]


def write_pairs(pairs: Sequence[Pair], text_style: TextStyle) -> Iterator[str]:
    """Write the comparison for a person: every difference, and a little of what is equal around it."""
    width = max((len(_step(pair).kind) for pair in pairs), default=0)
    near = {
        m for n, pair in enumerate(pairs) if pair.op != "equal" for m in range(n - EQUAL_SHOWN, n + EQUAL_SHOWN + 1)
    }
    skipped = 0
    for number, pair in enumerate(pairs):
        if pair.op == "equal" and number not in near:
            skipped += 1
            continue
        if skipped:
            yield text_style.style("dim", f"  … {skipped} equal")
            skipped = 0
        yield from _lines(pair, width, text_style)
    if skipped:
        yield text_style.style("dim", f"  … {skipped} equal")


def _lines(pair: Pair, width: int, text_style: TextStyle) -> Iterator[str]:
    if pair.op == "equal":
        yield text_style.style("dim", _line(" ", _step(pair), width))
        return
    if pair.left is not None and pair.right is not None and pair.left.text == pair.right.text:
        yield text_style.style("removed", f"{_line('~', pair.left, width)} · {clean(_place(pair.left, pair.right))}")
        return
    if pair.left is not None:
        yield text_style.style("removed", _line("-", pair.left, width))
    if pair.right is not None:
        yield text_style.style("added", _line("+", pair.right, width))


def _place(left: DiffStep, right: DiffStep) -> str:
    """Describe where two similar steps differ."""
    from treadle.providers.cassettes.file_format import first_difference

    return first_difference(left.key, right.key).replace("recorded ", "").replace(", asked ", " → ")


def _line(mark: str, step: DiffStep, width: int) -> str:
    shown = clean(cut_text(step.text, SHOWN_BYTES_MAX)).replace("\n", "⏎")
    hashed = f" · {step.fingerprint[:12]}" if step.fingerprint else ""
    return f"{mark} {step.kind:<{width}}  {shown}{hashed}"


def _step(pair: Pair) -> DiffStep:
    step = pair.left or pair.right
    assert step is not None, "a pair has a step"
    return step


def _shown(pair: Pair) -> dict[str, Any]:
    """Return a pair as a program reads it."""
    sides = {"left": pair.left, "right": pair.right}
    shown = {
        side: None if step is None else {"seq": step.seq, "text": step.text, "fingerprint": step.fingerprint or None}
        for side, step in sides.items()
    }
    return {"op": pair.op, "kind": _step(pair).kind, **shown}
