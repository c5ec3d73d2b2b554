"""Decodes a Gemini provider's bytes into model events: an event stream, or one response or a list, in any chunks.

Exactly one Finished or Failed comes last, from `finish` at the latest, since Gemini's streams just end. Nothing a
provider sends raises.
"""

import re
from typing import Any

import msgspec

from treadle.core.errors import BrokenStream, ProtocolError
from treadle.core.events import Finished, Stop
from treadle.core.items import Blob
from treadle.core.usage import Usage
from treadle.protocols.decoding.answer_meter import CUTS, UNNAMED
from treadle.protocols.decoding.json_values import as_list, as_object, as_text, as_word, json_text
from treadle.protocols.decoding.keepalive_frames import is_keep_alive
from treadle.protocols.decoding.stream_decoder import AnswerDecoder
from treadle.protocols.gemini.content_parts import RAW_ARGUMENTS, SIGNATURE, read_part
from treadle.protocols.gemini.field_spelling import CamelFields, documented, pick
from treadle.protocols.gemini.upstream_assembly import CallPiece, GeminiAssembly
from treadle.protocols.gemini.upstream_chunk import (
    BROKEN_OFF,
    MALFORMED_CALLS,
    STOPS,
    UNSPECIFIED,
    misshapen,
    read_chunks,
    read_error,
    read_usage,
)

_CALLED = re.compile(r"(?:default_api[.:]|call:(?!default_api))([A-Za-z_][\w.-]*)")
"""The name in a call that Gemini could not read: `print(default_api.f(x=1))`, `call:f{x:1}`."""

_SIGNATURES = ("thoughtSignature", "thought_signature")
_ABOUT = (
    "citationMetadata",
    "groundingMetadata",
    "urlContextMetadata",
    "logprobsResult",
    "avgLogprobs",
    "safetyRatings",
)
"""Fields of a candidate about its content, for clients of Gemini."""


_ABOUT_NAMES = frozenset(_ABOUT)
_ANSWER_FIELDS = frozenset({"candidates", "promptFeedback", "usageMetadata"})
_CALL_FIELDS = frozenset({"id", "name", "willContinue", "will_continue"})
_OTHER_FIELDS = frozenset({"modelVersion", "responseId", "createTime", "modelStatus"})
"""Fields of a response beside its answer."""


class Decoder(AnswerDecoder[GeminiAssembly]):
    """Turns the answer of one model call into events."""

    assembly_class = GeminiAssembly
    _reason: str | None = None
    _finish_message = ""
    _usage: Usage | None = None
    _noted_fields: frozenset[str] = frozenset()

    def _read_document(self, data: str) -> None:
        chunks = read_chunks(data)
        if chunks is None:
            self._fail(BrokenStream("The upstream's answer is not a response of Gemini.").info)
        for chunk in chunks or ():
            what = "" if chunk.get("error") else misshapen(documented(chunk))
            if what and self._terminal is None:
                self._damage(what)
            self._read_chunk(chunk)

    def _read_frame(self, name: str, data: str) -> None:
        self._assembly.is_streamed = True
        chunks = read_chunks(data)
        is_list = data.startswith("[")
        if name == "error" and chunks is None:
            self._fail(read_error(data))
        elif chunks is None or (is_list and not (len(chunks) == 1 and chunks[0].get("error"))):
            # Gateways wrap an error in a list of one; nothing else comes in a list.
            if not is_keep_alive(name, data):
                self._damage(f"a frame of {len(data)} characters is no response object")
        else:
            self._read_streamed(chunks[0], name)

    def _read_streamed(self, chunk: dict[str, Any], name: str) -> None:
        """Read a frame, unless it is not what it should be."""
        is_error = name == "error" or bool(chunk.get("error"))
        fields = documented(chunk)
        if not is_error and fields.keys().isdisjoint(_ANSWER_FIELDS):
            message = chunk.get("message") or chunk.get("detail")
            if message:
                self._fail(read_error({"message": message}))
            elif not fields.keys() <= _OTHER_FIELDS and not is_keep_alive(name, json_text(chunk)):
                self._damage("a frame is no response object")
        elif not is_error and (what := misshapen(fields)):
            self._damage(what)
        else:
            self._read_chunk(fields, is_error=is_error)

    def _read_chunk(self, chunk: dict[str, Any], *, is_error: bool = False) -> None:
        if self._terminal is not None:
            return
        if chunk.get("error") or is_error:
            self._fail(read_error(chunk.get("error") or chunk))
            return
        chunk = documented(chunk)
        if "usageMetadata" in chunk:
            self._usage = read_usage(chunk["usageMetadata"]) or self._usage
        if "promptFeedback" in chunk:
            self._read_feedback(documented(as_object(chunk["promptFeedback"])))
        for candidate in as_list(chunk.get("candidates")):
            self._read_candidate(documented(as_object(candidate)))
        if self._assembly.meter.is_over:
            self._check_bounds()

    def _read_feedback(self, feedback: dict[str, Any]) -> None:
        reason = as_word(feedback.get("blockReason"))
        if reason:
            message = as_word(feedback.get("blockReasonMessage"))
            self._assembly.note("prompt_blocked", "kept", f"the prompt was blocked: {reason} {message}".rstrip())
            self._reason = reason if STOPS.get(reason) == "filtered" else "PROHIBITED_CONTENT"

    def _read_candidate(self, candidate: dict[str, Any]) -> None:
        if candidate.get("index") not in (0, None):
            self._assembly.meter.mark_damaged("a part belongs to a candidate that was not asked for")
            return
        for part in as_list(as_object(candidate.get("content")).get("parts")):
            self._read_part(as_object(part))
            if self._assembly.meter.is_over:
                return
        if not _ABOUT_NAMES.isdisjoint(candidate):
            self._read_about(candidate)
        reason = candidate.get("finishReason")
        if reason is not None:
            self._read_reason(as_word(reason), candidate)

    def _read_about(self, candidate: dict[str, Any]) -> None:
        for name in _ABOUT:
            value = candidate.get(name)
            if value and not self._assembly.set_message_field(name, msgspec.Raw(json_text(value).encode())):
                self._note_field(name)

    def _read_reason(self, reason: str, candidate: dict[str, Any]) -> None:
        # Never let a second reason turn a cut answer into a good one.
        if reason and reason != UNSPECIFIED and (self._reason is None or STOPS.get(reason) in ("length", "filtered")):
            self._reason = reason
            self._finish_message = as_word(candidate.get("finishMessage"))

    def _note_field(self, name: str) -> None:
        """Note once that a field about an answer without a message is dropped."""
        if name not in self._noted_fields:
            self._noted_fields |= {name}
            self._assembly.note("field_dropped", "dropped", f"{name} of an answer", name)

    def _read_part(self, part: dict[str, Any]) -> None:
        text = part.get("text")
        if len(part) == 1 and isinstance(text, str):
            # What nearly every part is.
            self._assembly.add_text(text)
            return
        blobs = self._blobs(as_word(pick(part, "thoughtSignature")))
        call = pick(part, "functionCall")
        if isinstance(call, dict) and _is_call(as_object(call)):
            self._assembly.add_call(_piece(as_object(call), blobs))
        elif call is not None:
            self._drop_part()
        elif part.get("thought") is True:
            self._assembly.add_reasoning(as_text(part.get("text")), blobs)
        else:
            self._read_shown(part)
            self._assembly.sign(blobs)

    def _read_shown(self, part: dict[str, Any]) -> None:
        text = part.get("text")
        if isinstance(text, str):
            self._assembly.add_text(text)
            return
        raw = json_text({name: value for name, value in part.items() if name not in _SIGNATURES}).encode()
        try:
            shown = read_part(CamelFields(raw, "part"))
        except ProtocolError:
            self._drop_part()
            return
        if shown is not None:
            self._assembly.add_part(shown, len(raw))

    def _drop_part(self) -> None:
        self._assembly.meter.mark_damaged("a part is not as it should be")

    def _blobs(self, signature: str) -> tuple[Blob, ...]:
        if not signature:
            return ()
        return (self._assembly.blobs.from_text(SIGNATURE, signature),)

    def _end(self, *, is_explicit: bool) -> None:
        assembly, reason = self._assembly, self._reason
        calls_stand = is_explicit and assembly.has_calls and assembly.calls_are_complete
        if reason is None and not calls_stand:
            self._cut_off()
            return
        if reason in BROKEN_OFF:
            self._fail(BrokenStream(f"The upstream broke off: {reason}. {self._finish_message}".rstrip()).info)
            return
        if reason in MALFORMED_CALLS:
            self._add_malformed(reason)
        elif reason is not None and reason not in STOPS:
            assembly.note("unknown_finish", "coerced", f"the finish reason {reason!r} is taken as a good end")
        is_cut = STOPS.get(reason or "") in CUTS
        if assembly.is_streamed and not is_cut and assembly.has_open_calls:
            self._fail(BrokenStream("The upstream's answer is damaged: a call has not ended.").info)
            return
        assembly.finish(is_cut=is_cut)
        self._close(Finished(stop=self._stop(), usage=self._usage, raw_stop=reason))

    def _add_malformed(self, reason: str) -> None:
        """Add the call that Gemini could not read all the same: its result shows the model what was wrong."""
        text = self._finish_message or reason
        found = _CALLED.search(text)
        self._assembly.note("malformed_call", "kept", f"{reason}: the call is passed on as the model wrote it")
        self._assembly.add_call(CallPiece(name=found[1] if found else UNNAMED, args={RAW_ARGUMENTS: text}))

    def _stop(self) -> Stop:
        stop = STOPS.get(self._reason or "", "done")
        return "calls" if stop == "done" and self._assembly.has_calls else stop


def _is_call(call: dict[str, Any]) -> bool:
    """Whether a call can be read; one without arguments may have them under an unknown name."""
    has_none = "args" not in call and pick(call, "partialArgs") is None
    return isinstance(call.get("args"), dict | str | None) and not (has_none and not call.keys() <= _CALL_FIELDS)


def _piece(call: dict[str, Any], blobs: tuple[Blob, ...]) -> CallPiece:
    return CallPiece(
        id=as_word(call.get("id")),
        name=as_word(call.get("name")),
        args=call.get("args"),
        partial=as_list(pick(call, "partialArgs")),
        will_continue=pick(call, "willContinue") is True,
        blobs=blobs,
    )
