"""Writes a plan as the body of a Chat Completions request. It always streams: a whole answer is a stream folded.

Most of a history are plain texts, calls of functions and their results: those take a short way to the same bytes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from treadle.core.items import (
    AnyItem,
    AnyPart,
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    OpaqueItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_of,
)
from treadle.core.json import read_json, write_json
from treadle.core.memoized import Memo
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.chat.client_request import OLD_TOKENS_MAX
from treadle.protocols.chat.content_parts import PROTOCOL, with_extra, write_image, write_part
from treadle.protocols.chat.provider_state import CALL_STATE, KINDS, MESSAGE_STATE, THOUGHT_STATE, may_return
from treadle.protocols.chat.tools import is_built_in, write_choice, write_tool
from treadle.protocols.codec_interfaces import WrittenRequest
from treadle.protocols.decoding.json_values import as_list, as_object
from treadle.protocols.field_reader import LIST, OBJECT
from treadle.protocols.protocol_registry import RESPONSES
from treadle.protocols.translation_notes import (
    CHOICE,
    HOSTED,
    LOGPROBS,
    METADATA,
    OPENAI_ALIKE,
    Notes,
    kind_of,
    note_foreign,
    note_hosted,
    note_unread,
    unread,
)
from treadle.protocols.turn_grouping import (
    GroupedTurn,
    TurnText,
    is_continued,
    plain_text,
    regroup,
    result_text,
    turn_text,
)

ERROR_MARK = "[error]"
"""What stands before the text of a result that failed."""

_WITH_USAGE = {"include_usage": True}
_OWN_ERROR = '{"error"'
"""How the errors of Treadle's own tools begin: they need no mark."""

_FROM_RESPONSES = {
    **{name: name for name in OPENAI_ALIKE},
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "text.verbosity": "verbosity",
    LOGPROBS: "logprobs",
}
"""Options of the Responses API, by their paths, and what Chat calls them."""


def write_request(plan: Plan, *, provider: str = "") -> WrittenRequest:
    """Write the request; blobs go back only to the `provider` that made them."""
    notes, options = Notes(), plan.options
    messages: Any = plan.fold(_Usual).messages()
    if messages is None:
        note_foreign(plan.items, (), PROTOCOL, notes)
    tools = _TOOLS.of(plan.tools) if plan.tools else _NO_TOOLS
    if tools.has_extra:
        note_foreign((), plan.tools, PROTOCOL, notes)
    if messages is None:
        messages = _MessageWriter(notes, provider, plan.model).write(plan.items)
    body: dict[str, Any] = {"model": plan.model, "messages": messages}
    if plan.tools or options.extra:
        body |= _tool_fields(plan, tools, notes)
    _add_options(body, options)
    body["stream"] = True
    body["stream_options"] = _WITH_USAGE
    if options.extra:
        body |= _extra_fields(options, body, notes)
    return WrittenRequest(body=write_json(body), notes=notes.all() if notes.added else ())


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str
    arguments: str


class _Call(msgspec.Struct, frozen=True, gc=False):
    id: str
    type: str
    function: _Function


class _Calls(msgspec.Struct, frozen=True, gc=False):
    role: str
    content: str | None
    tool_calls: list[_Call]


class _Result(msgspec.Struct, frozen=True, gc=False):
    role: str
    tool_call_id: str
    content: str


class _Usual:
    """The messages of plain texts, of calls of functions, and of their results directly behind them, in order.

    Fits `core.incremental_folds.Fold`: each is written once, when nothing that comes later can change it any more.
    """

    def __init__(self) -> None:
        self._is_usual = True
        self._written = b""
        self._open: list[TurnText | _Calls | _Result] = []
        self._calls: list[_Call] = []
        self._answered = 0

    def messages(self) -> msgspec.Raw | None:
        """Return the list of them as JSON; None for a history in which there is anything else."""
        if not self._is_usual or self._answered != len(self._calls):
            return None
        return msgspec.Raw(b"[%b]" % _joined(self._written, self._open) if self._open else b"[%b]" % self._written)

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Take more of the history."""
        self._is_usual = self._is_usual and self._take(items)
        written = self._open
        if self._is_usual and self._answered == len(self._calls) and written:
            # The last message of the model becomes part of its calls, if such follow.
            last = written[-1]
            self._open = [written.pop()] if type(last) is TurnText and last.role == "assistant" else []
            if written:
                self._written = _joined(self._written, written)

    def _take(self, items: Sequence[AnyItem]) -> bool:
        """Make messages of the items; false if there is an unusual one.

        What follows is one loop without a call for each item, because that would cost as much as all the rest.
        """
        messages, calls, answered = self._open, self._calls, self._answered
        for item in items:
            if type(item) is MessageItem:
                if answered != len(calls) or len(item.content) != 1 or item.blobs:
                    return False
                part = item.content[0]
                if type(part) is not TextPart or part.extra is not None or part.annotations is not None:
                    return False
                if item.extra is not None or item.name is not None or item.phase is not None:
                    return False
                messages.append(TurnText(item.role, part.text))
            elif type(item) is CallItem:
                if item.blobs or item.extra is not None or item.kind != "function":
                    return False
                call = _Call(item.call_id, "function", _Function(item.name, item.arguments))
                if answered != len(calls):
                    if answered:
                        return False
                    calls.append(call)
                    continue
                calls, answered = [call], 0
                last = messages[-1] if messages else None
                text = ""
                if type(last) is TurnText and last.role == "assistant":
                    text = last.content
                    messages.pop()
                messages.append(_Calls("assistant", text or None, calls))
            elif type(item) is ResultItem:
                part = item.output[0] if len(item.output) == 1 else None
                if answered == len(calls) or calls[answered].id != item.call_id or type(part) is not TextPart:
                    return False
                if part.extra is not None or item.extra is not None or item.is_error:
                    return False
                answered += 1
                messages.append(_Result("tool", item.call_id, part.text))
            else:
                return False
        self._calls, self._answered = calls, answered
        return True


def _joined(written: bytes, messages: Sequence[TurnText | _Calls | _Result]) -> bytes:
    """Return what stands in a list, with more messages in it."""
    more = write_json(messages)[1:-1]
    return b"%b,%b" % (written, more) if written else more


class _MessageWriter:
    """Puts the messages together. Those of the usual shapes are structs, the others dicts."""

    def __init__(self, notes: Notes, provider: str, model: str) -> None:
        self._messages: list[Any] = []
        self._notes = notes
        self._provider = provider
        self._model = model

    def write(self, items: Sequence[AnyItem]) -> list[Any]:
        """Return the messages that the items are."""
        for step in regroup(items, self._notes):
            if type(step) is GroupedTurn:
                if not self._add_usual(step):
                    self._add_turn(step)
                if step.results:
                    self._add_results(step.results)
            elif type(step) is MessageItem:
                self._add_message(step)
            elif type(step) is OpaqueItem:
                self._add_opaque(step)
        return self._messages

    def _add_usual(self, turn: GroupedTurn) -> bool:
        """Write a turn of plain text and calls of functions; false for any other."""
        if turn.reasoning or len(turn.messages) > 1:
            return False
        text = plain_text(turn.messages[0]) if turn.messages else ""
        if text is None:
            return False
        if not turn.calls:
            self._messages.append(TurnText("assistant", text))
            return True
        calls: list[_Call] = []
        for call in turn.calls:
            if call.blobs or call.extra is not None or call.kind != "function":
                return False
            calls.append(_Call(call.call_id, "function", _Function(call.name, call.arguments)))
        self._messages.append(_Calls("assistant", text or None, calls))
        return True

    def _add_message(self, item: MessageItem) -> None:
        """Write a message that is not the model's."""
        text = plain_text(item)
        if text is not None:
            self._messages.append(TurnText(item.role, text))
            return
        message: dict[str, Any] = {"role": item.role, "content": self._content(item)}
        if item.name is not None:
            message["name"] = item.name
        self._add(message, item)

    def _add_opaque(self, item: OpaqueItem) -> None:
        """Pass a message of unknown kind on, if it is one of Chat's."""
        if item.protocol == PROTOCOL:
            self._messages.append(item.raw)
        else:
            self._notes.add("item_dropped", "dropped", f"an item that only {item.protocol} can carry")

    def _add_turn(self, turn: GroupedTurn) -> None:
        """Write a turn of the model."""
        message: dict[str, Any] = {"role": "assistant", "content": self._turn_content(turn) or None}
        if any(isinstance(part, TextPart) and part.annotations for item in turn.messages for part in item.content):
            self._notes.add("annotations_dropped", "dropped", "a request has no place for annotations of an answer")
        names = [item.name for item in turn.messages if item.name is not None]
        if names:
            message["name"] = names[0]
        declined = "".join(
            part.text for item in turn.messages for part in item.content if isinstance(part, RefusalPart)
        )
        if declined:
            message["refusal"] = declined
        if turn.calls:
            message["tool_calls"] = [self._call(call) for call in turn.calls]
        elif not declined:
            message["content"] = message["content"] or ""
        message |= self._thoughts(turn)
        message |= self._state(turn)
        self._add(message, *turn.messages)

    def _add_results(self, results: list[ResultItem]) -> None:
        shown: list[msgspec.Raw] = []
        for result in results:
            if (text := _plain_result(result)) is not None:
                self._messages.append(_Result("tool", result.call_id, text))
                continue
            output = self._with_error(result)
            text = result_text(output)
            attached = self._attachments(result)
            if attached:
                marker = f"[{len(attached)} attachment(s) of this result follow in the next user message]"
                text = f"{text}\n{marker}" if text else marker
                shown += [self._marker(result), *attached]
            content = text if attached or _is_string(output) else self._parts(output)
            self._add({"role": "tool", "tool_call_id": result.call_id, "content": content}, result)
        if shown:
            self._notes.add("result_attachment", "emulated", "images and files of results go into a user message")
            self._add({"role": "user", "content": shown})

    def _with_error(self, result: ResultItem) -> tuple[AnyPart, ...]:
        """Return the output of a result; a failure that is not recognizable as one is marked, for Chat has no flag."""
        if not result.is_error or result_text(result.output).startswith(_OWN_ERROR):
            return result.output
        self._notes.add("error_flag", "emulated", "that a result is an error is said in its text")
        first = result.output[0] if result.output else None
        if not isinstance(first, TextPart):
            return (TextPart(text=ERROR_MARK), *result.output)
        marked = msgspec.structs.replace(first, text=f"{ERROR_MARK} {first.text}")
        return (marked, *result.output[1:])

    def _attachments(self, result: ResultItem) -> list[msgspec.Raw]:
        parts = (write_part(part, self._notes) for part in result.output if not isinstance(part, TextPart))
        return [part for part in parts if part is not None]

    def _marker(self, result: ResultItem) -> msgspec.Raw:
        text = f"[attached to the result of {result.name or 'the call'} ({result.call_id})]"
        return msgspec.Raw(write_json({"type": "text", "text": text}))

    def _content(self, item: MessageItem) -> str | list[msgspec.Raw]:
        if not item.content:
            return ""
        if len(item.content) == 1 and _is_string(item.content):
            return text_of(item.content)
        return self._parts(item.content)

    def _turn_content(self, turn: GroupedTurn) -> str | list[msgspec.Raw]:
        spoken = [_as_content(message) for message in turn.messages]
        if all(_is_string(message.content) for message in spoken):
            return turn_text(turn)
        return self._parts(tuple(part for message in spoken for part in message.content))

    def _parts(self, parts: tuple[AnyPart, ...]) -> list[msgspec.Raw]:
        written = (write_part(part, self._notes) for part in parts)
        return [part for part in written if part is not None]

    def _thoughts(self, turn: GroupedTurn) -> dict[str, Any]:
        texts = ["".join(item.text) for item in turn.reasoning]
        lost = sum(1 for item in turn.reasoning if not (any(item.text) or item.blobs))
        if lost:
            self._notes.add("reasoning_dropped", "dropped", "reasoning without a text of its own", count=lost)
        thoughts = "\n\n".join(text for text in texts if text)
        return {"reasoning_content": thoughts} if thoughts else {}

    def _state(self, turn: GroupedTurn) -> dict[str, Any]:
        """Return the fields of the message that only the provider that made them may see again."""
        fields: dict[str, Any] = {}
        details: list[Any] = []
        images = [part for item in turn.messages for part in item.content if isinstance(part, ImagePart) and part.url]
        if images:
            fields["images"] = [write_image(part, place) for place, part in enumerate(images)]
        for item in (*turn.reasoning, *turn.messages, *turn.calls):
            for kind, value in self._values(item.blobs):
                if kind == MESSAGE_STATE:
                    fields |= _as_sent(as_object(value))
                elif kind == THOUGHT_STATE:
                    details += as_list(value)
        return {**fields, THOUGHT_STATE: details} if details else fields

    def _values(self, blobs: tuple[Blob, ...]) -> Iterator[tuple[str, Any]]:
        for blob in blobs:
            if blob.kind in KINDS and may_return(blob, self._provider, self._model):
                yield blob.kind, read_json(blob.data)
            else:
                self._notes.add("blob_dropped", "dropped", "state that only the provider that made it can read")

    def _call(self, call: CallItem) -> dict[str, Any]:
        word = "input" if call.kind == "custom" else "arguments"
        body = {"name": call.name, word: call.arguments}
        written: dict[str, Any] = {"id": call.call_id, "type": call.kind, call.kind: body}
        for blob in call.blobs:
            if blob.kind == CALL_STATE and may_return(blob, self._provider, self._model):
                written[CALL_STATE] = msgspec.Raw(blob.data.encode())
        return with_extra(written, call.extra)

    def _add(self, message: dict[str, Any], *items: AnyItem) -> None:
        for item in items:
            message = with_extra(message, item.extra)
        self._messages.append(message)


def _plain_result(result: ResultItem) -> str | None:
    """Return the text of a result that is one text and nothing else; None for any other."""
    if result.extra is not None or result.is_error or len(result.output) > 1:
        return None
    if not result.output:
        return ""
    part = result.output[0]
    return part.text if type(part) is TextPart and part.extra is None else None


def _is_string(parts: tuple[AnyPart, ...]) -> bool:
    """Whether the parts can be written as one string: text that Chat has nothing to add to."""
    return all(isinstance(part, TextPart) and (part.extra is None or part.extra.protocol != PROTOCOL) for part in parts)


def _as_content(item: MessageItem) -> MessageItem:
    """Return what stands in the content of an answer: refusals and images have fields of their own."""
    content = tuple(
        part
        for part in item.content
        if not isinstance(part, RefusalPart) and not (isinstance(part, ImagePart) and part.url)
    )
    return item if len(content) == len(item.content) else msgspec.structs.replace(item, content=content)


def _as_sent(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer as a request takes them: of audio, only the name it was given."""
    audio = as_object(fields.get("audio"))
    return {**fields, "audio": {"id": audio["id"]}} if "id" in audio else fields


def _tool_fields(plan: Plan, written: "_Tools", notes: Notes) -> dict[str, Any]:
    allowed = plan.tool_choice.allowed
    # Narrowing the list itself does the same as `allowed_tools` and works with every upstream.
    specs = plan.tools if allowed is None else tuple([spec for spec in plan.tools if spec.name in allowed])
    extra = plan.options.extra if plan.options.extra_protocol == PROTOCOL else {}
    hosted: list[msgspec.Raw] = []
    if HOSTED in extra:
        others = LIST.decode(extra[HOSTED])
        hosted = [tool for tool in others if not is_built_in(tool)]
        note_hosted([tool for tool in others if is_built_in(tool)], notes)
    tools = [*(written if allowed is None else _written(specs)).raws, *hosted]
    choice = None if plan.tool_choice.mode == "auto" else write_choice(plan.tool_choice, specs)
    if choice is None and CHOICE in extra and not is_continued(plan.items):
        choice = _kept_choice(extra[CHOICE], hosted, notes)
    if not tools:
        return {}
    fields: dict[str, Any] = {HOSTED: tools}
    if choice is not None:
        fields[CHOICE] = choice
    if plan.options.parallel_tool_calls is not None and plan.tool_choice.mode != "none":
        fields["parallel_tool_calls"] = plan.options.parallel_tool_calls
    return fields


class _Tools(NamedTuple):
    """Tools as they are written; some of them may have fields that another protocol knows."""

    raws: tuple[msgspec.Raw, ...]
    has_extra: bool


def _written(specs: tuple[ToolSpec, ...]) -> _Tools:
    has_extra = any(spec.extra is not None for spec in specs)
    return _Tools(tuple([write_tool(spec) for spec in specs]), has_extra)


_TOOLS: Memo[tuple[ToolSpec, ...], _Tools] = Memo(_written)
_NO_TOOLS = _Tools((), has_extra=False)


def _kept_choice(raw: msgspec.Raw, hosted: list[msgspec.Raw], notes: Notes) -> msgspec.Raw | None:
    """Return a choice of a tool that the upstream runs itself, where that tool is among those it is offered."""
    if any(kind_of(tool) == kind_of(raw) for tool in hosted):
        return raw
    notes.add("tool_choice_dropped", "dropped", f"no tool of type {kind_of(raw)!r} is offered", CHOICE)
    return None


def _extra_fields(options: Options, body: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the fields that Treadle does not act on and Chat knows; the others are noted."""
    if options.extra_protocol == PROTOCOL:
        if METADATA in options.extra:
            # OpenAI refuses it beside `store: false` (qwen-code#243), and Treadle has nothing stored upstream.
            notes.add("metadata_kept", "kept", "metadata stays with the run; the upstream is told none", METADATA)
        taken = {*body, OLD_TOKENS_MAX, HOSTED, CHOICE, METADATA}
        return {name: raw for name, raw in options.extra.items() if name not in taken}
    names = _FROM_RESPONSES if options.extra_protocol == RESPONSES else {}
    note_unread(options, names, notes)
    fields: dict[str, Any] = {names[path]: raw for path, raw in unread(options).items() if path in names}
    return {**fields, "logprobs": True} if {"logprobs", "top_logprobs"} & set(fields) else fields


def _add_options(body: dict[str, Any], options: Options) -> None:
    if options.max_output_tokens is not None:
        is_old = options.extra_protocol == PROTOCOL and OLD_TOKENS_MAX in options.extra
        body[OLD_TOKENS_MAX if is_old else "max_completion_tokens"] = options.max_output_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.stop:
        body["stop"] = options.stop
    if options.seed is not None:
        body["seed"] = options.seed
    if options.reasoning_effort is not None:
        body["reasoning_effort"] = options.reasoning_effort
    if options.output_schema is not None:
        body["response_format"] = _response_format(options.output_schema)


def _response_format(schema: msgspec.Raw) -> msgspec.Raw:
    """Return Chat's form of an output schema, which is flat in the canonical options."""
    fields = OBJECT.decode(schema)
    kind = fields.pop("type", None)
    if kind is None or bytes(kind) != b'"json_schema"':
        return schema
    return msgspec.Raw(write_json({"type": kind, "json_schema": fields}))
