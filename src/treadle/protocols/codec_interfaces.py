"""The shape that every codec has, whatever its protocol. Nothing here knows a protocol."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from treadle.core.events import ModelEvent, RunEvent
from treadle.core.ids import IdSource
from treadle.core.plan import Plan
from treadle.core.request import Note, Request


class WrittenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an upstream, and what had to be dropped, coerced or emulated to write it.

    `headers` say what a protocol says beside the body.
    """

    body: bytes
    notes: tuple[Note, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class Decoder(Protocol):
    """Turns an upstream's bytes into model events; the last one is Finished or Failed."""

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Return the events that these bytes complete."""
        ...

    def finish(self) -> list[ModelEvent]:
        """Return what the end of the bytes makes of them."""
        ...


class Encoder(Protocol):
    """Turns the events of a run into what a client reads."""

    def feed(self, event: RunEvent) -> list[bytes]:
        """Return the frames to send; none when the client did not ask for a stream."""
        ...

    def body(self) -> bytes:
        """Return the whole response, once the run has ended."""
        ...


class WriteRequest(Protocol):
    """Writes a plan as the body of a request."""

    def __call__(self, plan: Plan, *, provider: str = "") -> WrittenRequest:
        """Write the request; opaque state goes back only to the `provider` that made it."""
        ...


class NewDecoder(Protocol):
    """Makes the decoder for the answer to one request."""

    def __call__(
        self,
        ids: IdSource,
        *,
        provider: str = "",
        model: str = "",
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> Decoder:
        """Return a decoder that gives no call an id of `taken_call_ids`, those of the conversation so far."""
        ...


class ClientProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol that clients may speak to Treadle."""

    name: str
    read_request: Callable[[bytes], Request]
    encoder: Callable[[Request, IdSource], Encoder]


class UpstreamProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol that Treadle may speak to an upstream.

    `path` is appended to its base URL; `{model}` in it stands for the model's name, quoted.
    """

    name: str
    path: str
    write_request: WriteRequest
    decoder: NewDecoder
