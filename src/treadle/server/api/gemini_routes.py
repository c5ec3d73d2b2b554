"""Gemini: generate, stream and count tokens. The path names the model and what to do with it."""

from collections.abc import Awaitable, Callable
from functools import partial

from treadle.core.errors import NotFound
from treadle.core.request import Request
from treadle.protocols import gemini
from treadle.protocols.field_reader import Fields, open_body
from treadle.server import n_choices as choices
from treadle.server import run_response as stream
from treadle.server import token_estimate as tokens
from treadle.server.auth.route_permissions import GEMINI_API
from treadle.server.http_exchange import Exchange
from treadle.server.route import (
    ANY,
    COUNT,
    EVENTS,
    JSON,
    KEY,
    Content,
    ModelAction,
    RouteGroup,
    fields,
    gives,
    request,
    text,
)
from treadle.server.server_state import Service

_COLLECTION = "models/"
_TUNED = "tunedModels/"
_WRAPPED = ("generateContentRequest", "generate_content_request")


async def act(service: Service, exchange: Exchange) -> None:
    """Do what the path's action names; the model's name may contain slashes and colons. Raises: TreadleError."""
    await _act(service, exchange, exchange.params["model"].removeprefix(_COLLECTION))


async def act_tuned(service: Service, exchange: Exchange) -> None:
    """Do the same for a tuned model. Raises: TreadleError."""
    await _act(service, exchange, _TUNED + exchange.params["model"])


async def _act(service: Service, exchange: Exchange, resource: str) -> None:
    model, _, action = resource.rpartition(":")
    handler = _ACTIONS.get(action)
    if handler is None or not model:
        raise NotFound(
            f"There is nothing at {exchange.method} {exchange.path}.",
            hint=f"A model can be asked to {', '.join(_ACTIONS)}.",
        )
    await handler(service, exchange, model)


async def _generate(service: Service, exchange: Exchange, model: str) -> None:
    await _answer(service, exchange, partial(gemini.read_request, model=model, stream=False))


async def _stream(service: Service, exchange: Exchange, model: str) -> None:
    """Stream as frames where the client asked for them, else as one JSON array, as the API does."""
    query = exchange.query()
    is_array = (query.get("alt") or query.get("$alt")) != "sse"
    await _answer(service, exchange, partial(gemini.read_request, model=model, stream=True, is_array=is_array))


async def _count(service: Service, exchange: Exchange, model: str) -> None:
    request = await service.read(exchange, partial(_read_counted, model=model))
    await exchange.answer_json(
        200, {"totalTokens": await tokens.count(service, request, exchange.client)}, tokens.ESTIMATE
    )


async def _answer(service: Service, exchange: Exchange, reader: Callable[[bytes], Request]) -> None:
    request = await service.read(exchange, reader)
    carry = stream.reply if request.surface.choices == 1 else choices.reply
    await carry(service, exchange, request)


def _read_counted(body: bytes, *, model: str) -> Request:
    """Read what is to be counted: the body itself, or the whole request that some clients put inside it.

    Raises: ProtocolError.
    """
    body, _ = open_body(body)
    fields = Fields(body, "")
    wrapped = next((raw for name in _WRAPPED if (raw := fields.json_object(name)) is not None), None)
    return gemini.read_request(body if wrapped is None else bytes(wrapped), model=model)


_Action = Callable[[Service, Exchange, str], Awaitable[None]]
_ACTIONS: dict[str, _Action] = {
    "generateContent": _generate,
    "streamGenerateContent": _stream,
    "countTokens": _count,
}
_BODY = request("contents", contents={}, tools={}, generationConfig={}, systemInstruction={})
_DESCRIBED = (
    ModelAction(name="generateContent", summary="Answer", answers=gives(ANY), headers=(KEY,), body=_BODY),
    ModelAction(
        name="streamGenerateContent",
        summary="Answer as a stream",
        answers={200: (Content(JSON, {}), Content(EVENTS))},
        query=(text("alt", "`sse` for frames instead of a JSON array"),),
        headers=(KEY,),
        body=_BODY,
    ),
    ModelAction(
        name="countTokens",
        summary="Estimate the tokens of a request",
        answers=gives(fields(totalTokens=COUNT)),
        body=request(),
    ),
)
_ROWS = RouteGroup("Gemini", GEMINI_API)
ROUTES = tuple(
    _ROWS.post(pattern, handler, "Ask a model", {}, actions=_DESCRIBED)
    for pattern, handler in (
        ("/v1beta/models/{model*}", act),
        ("/v1beta/tunedModels/{model*}", act_tuned),
        ("/v1/models/{model*}", act),
        ("/v1/tunedModels/{model*}", act_tuned),
    )
)
