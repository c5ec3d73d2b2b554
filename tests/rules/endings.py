"""The table of how runs end, as docs/http.md has it: what each protocol says is read off its own encoder."""

from typing import Any

import msgspec

from treadle.core.errors import ErrorInfo
from treadle.core.events import ItemAdded, RunEnded, RunStarted, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import MessageItem
from treadle.core.request import Request, Surface
from treadle.core.run_endings import ENDINGS, Ending, failure_of, may_retry
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.sse import SseReader

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
SAID = (
    STARTED,
    ItemAdded(index=0, item=MessageItem(role="assistant", content=(), id="msg_1")),
    TextDelta(index=0, text="A"),
)
_RETRY_AFTER = (429, 503)
_HEAD = ("what happens to a run", "status", "code", "unstreamed", "Chat", "Responses", "Messages", "Gemini", "")


def endings() -> str:
    """Write the table."""
    head = f"| {' | '.join(_HEAD)} |\n{'|---' * len(_HEAD)}|"
    return "\n".join([head, *map(_row, ENDINGS), ""])


def _row(ending: Ending) -> str:
    end = ending.end
    if end is None:
        cells = [ending.what, "goes on", *[""] * 6]
    elif ending.form == "broken":
        assert end.error is not None
        cells = [ending.what, "goes on", f"`{end.error.code}`", _status(end.error), *["connection cut"] * 4]
    else:
        failure = failure_of(end)
        code = f"`{failure.code}`" if failure else f"limit `{end.limit}`" if end.limit else ""
        unstreamed = "200" if failure is None else _status(failure)
        cells = [ending.what, end.status, code, unstreamed, *(_last_words(end, each) for each in PROTOCOLS)]
    return f"| {' | '.join([*cells, ending.note])} |"


def _status(error: ErrorInfo) -> str:
    if not may_retry(error, has_run_tools=False, is_keyed=False):
        return f"{error.status}, `x-should-retry: false`"
    return f"{error.status}, `retry-after`" if error.status in _RETRY_AFTER else str(error.status)


def _last_words(end: RunEnded, protocol: str) -> str:
    """Return how the stream of a protocol ends."""
    request = Request(protocol=protocol, model="m", surface=Surface(stream=True))
    encoder = PROTOCOLS[protocol].codec.encoder(request, CountingIds())
    sent = b"".join(frame for event in (*SAID, end) for frame in encoder.feed(event))
    frames = SseReader().feed(sent)
    closes = frames[-1].data == "[DONE]"
    frames = frames[:-1] if closes else frames
    said = [_words(frame.event, msgspec.json.decode(frame.data)) for frame in frames[-2:]]
    return " ".join(filter(None, (*said, "`[DONE]`" if closes else "")))


def _words(name: str, data: dict[str, Any]) -> str:
    if "error" in (name, *data):
        return "`error`"
    if name.startswith("response.") and "response" in data:
        return f"`{name}`" if name.endswith(data["response"]["status"]) else f"`{name}`, {data['response']['status']}"
    reasons = [data.get("delta", {}).get("stop_reason") if name == "message_delta" else None]
    for choice in (*data.get("choices", ()), *data.get("candidates", ())):
        reasons += [choice.get("finish_reason"), choice.get("finishReason")]
    return "".join(f"`{reason}`" for reason in reasons if reason)
