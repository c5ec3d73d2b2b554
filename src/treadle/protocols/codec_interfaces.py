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

    `headers` are those of the protocol beside the body.
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
        arguments_bytes_max: int = ...,
        text_bytes_max: int = ...,
        taken_call_ids: frozenset[str] = frozenset(),
    ) -> Decoder:
        """Return a decoder that gives no call an id of `taken_call_ids`, those of the conversation so far."""
        ...


class ChoicesEncoder(Protocol):
    """Turns the events of as many runs as a client wants answers into one response."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be written."""
        ...

    def feed(self, choice: int, event: RunEvent) -> list[bytes]:
        """Return the frames to send for an event of the run of that choice."""
        ...

    def body(self) -> bytes:
        """Return the whole response, once it is over."""
        ...


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """How one protocol is read and written, on either side.

    `choices_encoder` is there where a client may ask for several answers, `read_posted` where the path of a request
    says more than which protocol it is.
    """

    read_request: Callable[[bytes], Request]
    encoder: Callable[[Request, IdSource], Encoder]
    write_request: WriteRequest
    decoder: NewDecoder
    choices_encoder: Callable[[Request, IdSource, int], ChoicesEncoder] | None = None
    read_posted: Callable[[str, bytes], Request] | None = None
