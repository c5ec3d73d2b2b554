"""Which models there are, in the shape of the API that asks: OpenAI's, Anthropic's or Gemini's."""

from collections.abc import Callable, Sequence

import msgspec

from treadle.access.client_identity import fits
from treadle.core.errors import NotFound
from treadle.protocols.protocol_registry import PROTOCOLS, Vendor
from treadle.providers.model_router import ModelInfo
from treadle.server.auth.route_permissions import ANY_API
from treadle.server.http_exchange import Exchange
from treadle.server.route import ANY, RouteGroup, gives
from treadle.server.server_state import Service

_RELEASED = "1970-01-01T00:00:00Z"
"""The release date is unknown, but the field is required."""

_ACTIONS = ("generateContent", "streamGenerateContent", "countTokens")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How one API shows a model, and a list of them."""

    one: Callable[[ModelInfo], dict[str, object]]
    page: Callable[[Sequence[dict[str, object]]], dict[str, object]]


async def index(service: Service, exchange: Exchange) -> None:
    """List the models."""
    shape = _shape(exchange)
    await exchange.answer_json(200, shape.page([shape.one(info) for info in await models_of(service, exchange)]))


async def models_of(service: Service, exchange: Exchange) -> list[ModelInfo]:
    """Return the models that the client may ask."""
    patterns = exchange.client.grant.models
    return [info for info in await service.runtime.router.list_models() if fits(info.id, patterns)]


async def get(service: Service, exchange: Exchange) -> None:
    """Return one model. Raises: NotFound."""
    wanted = exchange.params["model"]
    info = next((info for info in await models_of(service, exchange) if info.id == wanted), None)
    if info is None:
        raise NotFound(f"There is no model {wanted!r}.", code="model_not_found", hint="GET /v1/models lists them.")
    await exchange.answer_json(200, _shape(exchange).one(info))


def _shape(exchange: Exchange) -> Shape:
    return _SHAPES[PROTOCOLS[exchange.envelope].vendor]


def _openai(info: ModelInfo) -> dict[str, object]:
    return {"id": info.id, "object": "model", "created": 0, "owned_by": info.upstream}


def _openai_page(data: Sequence[dict[str, object]]) -> dict[str, object]:
    return {"object": "list", "data": data}


def _anthropic(info: ModelInfo) -> dict[str, object]:
    return {"type": "model", "id": info.id, "display_name": info.id, "created_at": _RELEASED}


def _anthropic_page(data: Sequence[dict[str, object]]) -> dict[str, object]:
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}


def _google(info: ModelInfo) -> dict[str, object]:
    return {
        "name": f"models/{info.id}",
        "displayName": info.id,
        "version": "",
        "supportedGenerationMethods": _ACTIONS,
    }


def _google_page(data: Sequence[dict[str, object]]) -> dict[str, object]:
    return {"models": data}


_SHAPES: dict[Vendor, Shape] = {
    "openai": Shape(one=_openai, page=_openai_page),
    "anthropic": Shape(one=_anthropic, page=_anthropic_page),
    "google": Shape(one=_google, page=_google_page),
}

_ROWS = RouteGroup("Models", ANY_API)
ROUTES = tuple(
    route
    for prefix in ("/v1", "/v1beta")
    for route in (
        _ROWS.get(f"{prefix}/models", index, "List the models, in the shape of the API that asks", gives(ANY)),
        _ROWS.get(f"{prefix}/models/{{model*}}", get, "Show one model", gives(ANY)),
    )
)
