"""Detects quirks of an endpoint from recorded streams: counts symptoms by endpoint and model, and suggests quirks.

Symptoms are the notes of the decoder and the texts of refusals. Cassettes are decoded again from their bytes, so that
old recordings are analyzed by the current detectors.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError, TreadleError
from treadle.core.events import ModelEvent, Noted
from treadle.core.ids import CountingIds
from treadle.core.request import Note
from treadle.evals.toml_writer import write_toml
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.cassettes.file_format import Call, Cassette, data_of, load_cassette
from treadle.providers.fakes.fake_server import plan_of
from treadle.providers.provider_model import AnswerRules, open_call
from treadle.providers.quirk_table import QUIRKS

_BY_CODE = {code: name for name, quirk in QUIRKS.items() for code in quirk.codes}
_RECOVERED = {"call_recovered": "dialect_text"}
"""Notes of repairs that stand for a symptom of the table."""

ANSWERS: dict[str, str] = {"stray_name": "stray_names", "mended_name": "stray_names"}
"""Quirks of requests that answer a symptom of answers."""

REFUSALS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), quirk)
    for pattern, quirk in (
        (r"max_completion_tokens.*(unknown|unrecogni[sz]ed|extra|not permitted|unsupported)", "old_max_tokens"),
        (r"(unsupported|not supported).*max_tokens|use 'max_completion_tokens'", "new_max_tokens"),
        (r"parallel.tool.calls", "no_parallel_flag"),
        (r"stream_options", "no_stream_options"),
        (r"unknown name \"?seed|\bseed\b.*(not permitted|unknown)", "no_seed"),
        (r"frequency_penalty|presence_penalty", "no_penalties"),
        (r"logprobs|logit_bias", "no_logprobs"),
        (r"reasoning.?effort", "no_reasoning_effort"),
        (r"unknown name \"?(const|\$schema|additionalProperties)", "openapi_schema"),
        (r"length of 9", "ids_of_9"),
        (r"maximum length 40", "ids_of_40"),
        (r"invalid message content type|content.*<nil>", "no_null_content"),
        (r"reasoning_content.*must be passed", "reasoning_echo"),
        (r"extra_forbidden.*reasoning_content", "no_reasoning_echo"),
        (r"multiple tool calls are not supported", "paired_calls"),
        (r"unexpected role 'user' after role 'tool'", "no_user_after_tool"),
        (r"tool_choice", "no_required_choice"),
        (r"\bstrict\b", "no_strict"),
    )
)
"""Words of a refusal, and the quirk that avoids it; the first that fits."""


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted of one endpoint: calls in all, symptoms, and the quirks that would answer refusals."""

    endpoint: str
    calls: int
    symptoms: dict[str, int]
    wanted: dict[str, int]

    @property
    def suggested(self) -> list[str]:
        """Return the quirks to configure, most often wanted first."""
        answered = [ANSWERS[name] for name in self.symptoms if name in ANSWERS]
        return list(dict.fromkeys([*answered, *sorted(self.wanted, key=lambda name: (-self.wanted[name], name))]))


def symptoms_of(notes: Iterable[Note]) -> dict[str, int]:
    """Count the notes that are symptoms, by the name of their quirk."""
    found: dict[str, int] = {}
    for note in notes:
        name = _BY_CODE.get(note.code) or _RECOVERED.get(note.code)
        if name is not None:
            found[name] = found.get(name, 0) + note.count
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def detect(paths: Sequence[Path]) -> list[Detected]:
    """Count what the cassettes of files and folders show, endpoint by endpoint.

    Raises: ConfigError, for a cassette that cannot be read.
    """
    found: dict[str, Detected] = {}
    for file in _files(paths):
        cassette = load_cassette(file)
        seen = detect_in(cassette)
        before = found.get(seen.endpoint)
        found[seen.endpoint] = seen if before is None else _added(before, seen)
    return list(found.values())


def detect_in(cassette: Cassette) -> Detected:
    """Count what one cassette shows."""
    symptoms: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for call in cassette.calls:
        status = 0 if call.answered is None else call.answered.status
        if 400 <= status < 500:
            body = b"".join(map(data_of, call.chunks)).decode("utf-8", "replace")
            quirk = next((quirk for pattern, quirk in REFUSALS if pattern.search(body)), None)
            if quirk is not None:
                wanted[quirk] = wanted.get(quirk, 0) + 1
            if "support tool" in body.lower():
                symptoms["tools_refused"] = symptoms.get("tools_refused", 0) + 1
            continue
        for name, count in symptoms_of(_notes(cassette.header.protocol, call)).items():
            symptoms[name] = symptoms.get(name, 0) + count
    header = cassette.header
    models = ", ".join(cassette.models)
    name = f"{header.upstream} {header.base_url} {models}".rstrip()
    return Detected(endpoint=name, calls=len(cassette.calls), symptoms=_ordered(symptoms), wanted=_ordered(wanted))


def _notes(protocol: ProtocolName, call: Call) -> list[Note]:
    """Decode a recorded answer again, as the answer to the request that was recorded with it."""
    try:
        request = PROTOCOLS[protocol].read_posted(call.asked.path, call.body)
    except TreadleError:
        return []
    rules = AnswerRules(repair=RepairRules())
    decoder = open_call(protocol, plan_of(request), CountingIds(), "recorded", rules=rules).decoder
    events: list[ModelEvent] = []
    for chunk in call.chunks:
        events += decoder.feed(data_of(chunk))
    return [event.note for event in [*events, *decoder.finish()] if isinstance(event, Noted)]


def _added(first: Detected, second: Detected) -> Detected:
    def sums(left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        return _ordered({name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}})

    return Detected(
        endpoint=first.endpoint,
        calls=first.calls + second.calls,
        symptoms=sums(first.symptoms, second.symptoms),
        wanted=sums(first.wanted, second.wanted),
    )


def _ordered(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        folder = path / "cassettes" if (path / "cassettes").is_dir() else path
        found = sorted(folder.rglob("*.jsonl")) if folder.is_dir() else [folder]
        if not found or not found[0].exists():
            raise ConfigError(f"there is no cassette at {path}", param="paths", hint="a run's folder, or a .jsonl file")
        files += found
    return files


def write_detected(found: Sequence[Detected]) -> str:
    """Write the counts of each endpoint, and what to put into treadle.toml."""
    lines: list[str] = []
    for each in found:
        lines.append(f"{each.endpoint}: {each.calls} calls")
        lines += [f"  {count:>5}  {name}: {QUIRKS[name].symptom}" for name, count in each.symptoms.items()]
        lines += [f"  {count:>5}  refused for {name}: {QUIRKS[name].symptom}" for name, count in each.wanted.items()]
        if not each.symptoms and not each.wanted:
            lines.append("  nothing odd")
        if each.suggested:
            upstream, _, base_url = each.endpoint.partition(" ")
            entry = {"name": upstream, "base_url": base_url.partition(" ")[0], "quirks": each.suggested}
            lines += [
                "  suggested:",
                *(f"    {line}" for line in write_toml({"upstream": [entry]}).strip().splitlines()),
            ]
    return "\n".join([*lines, ""])
