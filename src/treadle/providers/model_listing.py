"""Lists the models of endpoints: cached, with a time limit, and an endpoint that fails lists none."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from treadle.core.errors import UpstreamError
from treadle.core.json import type_errors
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.providers.provider_client import HttpClient
from treadle.providers.provider_endpoint import Endpoint

TIMEOUT_S = 3.0
FRESH_S = 300.0
MODELS_MAX = 2_000

log = logging.getLogger(__name__)


class _Named(msgspec.Struct):
    id: str | None = None
    name: str | None = None


class _Page(msgspec.Struct):
    """A list of models: OpenAI and Anthropic use `data` with ids, Gemini `models` with names like `models/x`.

    Some servers send both, and Together sends the bare list (helixml/helix#386).
    """

    data: list[msgspec.Raw] | None = None
    models: list[msgspec.Raw] | None = None


_pages: msgspec.json.Decoder[_Page | list[msgspec.Raw]] = msgspec.json.Decoder(_Page | list[msgspec.Raw])
_entries: msgspec.json.Decoder[_Named] = msgspec.json.Decoder(_Named)


class Listing:
    """Caches the list of each endpoint, or that it failed, for `FRESH_S`."""

    def __init__(self, client: HttpClient, now: Callable[[], float]) -> None:
        self._client = client
        self._now = now
        self._cached: dict[str, tuple[float, list[str]]] = {}

    async def names(self, endpoints: Sequence[Endpoint]) -> dict[str, list[str]]:
        """Return the names of each endpoint's models, fetching expired lists concurrently."""
        found = await asyncio.gather(*(self._names(endpoint) for endpoint in endpoints))
        return {endpoint.name: names for endpoint, names in zip(endpoints, found, strict=True)}

    async def _names(self, endpoint: Endpoint) -> list[str]:
        fetched_at, names = self._cached.get(endpoint.name, (0.0, []))
        if fetched_at and self._now() - fetched_at < FRESH_S:
            return names
        try:
            path = PROTOCOLS[endpoint.protocol].list_path
            names = read_names(await self._client.get(endpoint, path, TIMEOUT_S))
        except (UpstreamError, *type_errors) as error:
            log.warning("upstream %s did not list its models: %s", endpoint.name, endpoint.redact(str(error)))
            names = []
        self._cached[endpoint.name] = (self._now(), names)
        return names


def read_names(body: bytes) -> list[str]:
    """Return the unique model names of a list in any protocol; entries without a name are skipped.

    Raises: msgspec.MsgspecError.
    """
    page = _pages.decode(body)
    entries = page if isinstance(page, list) else [*(page.data or ()), *(page.models or ())]
    names = dict.fromkeys(map(_read_name, entries))
    return [name for name in names if name][:MODELS_MAX]


def _read_name(entry: msgspec.Raw) -> str:
    try:
        named = _entries.decode(entry)
    except type_errors:
        return ""
    return named.id or (named.name or "").removeprefix("models/")
