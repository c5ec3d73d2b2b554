"""The google-genai SDK in front of a server that is a function: bytes of a request in, bytes of an answer out."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import httpx2
from google import genai
from google.genai import types

from treadle.core.events import RunEvent
from treadle.core.ids import CountingIds
from treadle.core.request import Request
from treadle.protocols.gemini import Encoder, read_request

Answer = Callable[[Request], Iterable[RunEvent]]

_heard: "list[Wire]" = []


@cache
def _client() -> genai.Client:
    """Return the one client: making it takes longer than all its questions."""
    transport = httpx2.Client(transport=httpx2.MockTransport(lambda request: _heard[-1].handle(request)))
    options = types.HttpOptions(base_url="http://gemini.test", httpx_client=transport)
    return genai.Client(api_key="k", http_options=options)


class Wire:
    """Reads each request as Treadle does and answers it with the run that `answer` gives."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self._answer = answer

    def client(self) -> genai.Client:
        """Return an SDK client that talks to this, until another is asked for its own."""
        _heard[:] = [self]
        return _client()

    def handle(self, request: Any) -> Any:
        """Answer a request."""
        name, _, method = request.url.path.rpartition("/")[2].rpartition(":")
        streams = method == "streamGenerateContent"
        assert not streams or request.url.params["alt"] == "sse"
        self.bodies.append(request.content)
        self.requests.append(read_request(request.content, model=name, stream=streams))
        encoder = Encoder(self.requests[-1], CountingIds())
        frames = [frame for event in self._answer(self.requests[-1]) for frame in encoder.feed(event)]
        return httpx2.Response(200, content=b"".join(frames) if streams else encoder.body())
