"""Which models an endpoint says it has: asked once in a while, bounded in time, and never a reason to fail."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from treadle.canon.errors import UpstreamError
from treadle.canon.json import type_errors
from treadle.upstream.endpoint import Endpoint
from treadle.upstream.http import HttpClient

TIMEOUT_S = 3.0
FRESH_S = 300.0
MODELS_MAX = 2_000

log = logging.getLogger(__name__)


class _Named(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Page(msgspec.Struct):
    """Lists of OpenAI and Anthropic are in `data` with ids, Gemini's in `models` with names like `models/x`."""

    data: list[_Named] = []
    models: list[_Named] = []


_pages = msgspec.json.Decoder(_Page)


class Listing:
    """Remembers what each endpoint answered, good or bad, for a while."""

    def __init__(self, client: HttpClient, now: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._known: dict[str, tuple[float, list[str]]] = {}

    async def names(self, endpoints: Sequence[Endpoint]) -> dict[str, list[str]]:
        """Return the names of each endpoint's models, asking all that were not asked lately at once."""
        found = await asyncio.gather(*(self._names(endpoint) for endpoint in endpoints))
        return {endpoint.name: names for endpoint, names in zip(endpoints, found, strict=True)}

    async def _names(self, endpoint: Endpoint) -> list[str]:
        asked_at, names = self._known.get(endpoint.name, (0.0, []))
        if asked_at and self._now() - asked_at < FRESH_S:
            return names
        try:
            names = read_names(await self._client.get(endpoint, "/models", TIMEOUT_S))
        except (UpstreamError, *type_errors) as error:
            log.warning("upstream %s did not list its models: %s", endpoint.name, endpoint.redact(str(error)))
            names = []
        self._known[endpoint.name] = (self._now(), names)
        return names


def read_names(body: bytes) -> list[str]:
    """Read the names in a list of models of any of the protocols.

    Raises: msgspec.MsgspecError.
    """
    page = _pages.decode(body)
    names = [each.id or each.name.removeprefix("models/") for each in (*page.data, *page.models)]
    return [name for name in names if name][:MODELS_MAX]
