"""Which models there are, in OpenAI's shape, and in Anthropic's for clients that say they speak it."""

from treadle.canon.errors import NotFound
from treadle.server.http import Exchange
from treadle.server.service import Service
from treadle.upstream.router import ModelInfo

_RELEASED = "1970-01-01T00:00:00Z"
"""Nobody knows when; the field is required."""


async def index(service: Service, exchange: Exchange) -> None:
    """GET /v1/models."""
    infos = service.runtime.router.models()
    if b"anthropic-version" not in exchange.headers:
        await exchange.answer_json(200, {"object": "list", "data": [_openai(info) for info in infos]})
        return
    data = [_anthropic(info) for info in infos]
    first, last = (infos[0].id, infos[-1].id) if infos else (None, None)
    await exchange.answer_json(200, {"data": data, "has_more": False, "first_id": first, "last_id": last})


async def get(service: Service, exchange: Exchange) -> None:
    """GET /v1/models/{id}.

    Raises: NotFound.
    """
    wanted = exchange.params["model"]
    info = next((info for info in service.runtime.router.models() if info.id == wanted), None)
    if info is None:
        raise NotFound(f"There is no model {wanted!r}.", code="model_not_found", hint="GET /v1/models lists them.")
    write = _anthropic if b"anthropic-version" in exchange.headers else _openai
    await exchange.answer_json(200, write(info))


def _openai(info: ModelInfo) -> dict[str, object]:
    return {"id": info.id, "object": "model", "created": 0, "owned_by": info.upstream}


def _anthropic(info: ModelInfo) -> dict[str, object]:
    return {"type": "model", "id": info.id, "display_name": info.id, "created_at": _RELEASED}
