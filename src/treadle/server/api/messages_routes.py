"""Anthropic Messages: create, and count the tokens of what would be created."""

import re

import msgspec

from treadle.core.errors import NotFound, ProtocolError
from treadle.protocols import messages
from treadle.server import run_response as stream
from treadle.server import token_estimate as tokens
from treadle.server.auth.route_permissions import MESSAGES_API
from treadle.server.http_exchange import Exchange
from treadle.server.route import ANY, COUNT, KEY, TEXT, RouteGroup, fields, gives, listed, request, streams
from treadle.server.server_state import Service

_VERSION, _BETA = b"anthropic-version", b"anthropic-beta"
_VERSION_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOST = "previous_response_not_found"
"""The error code of `runs` for a conversation that is not stored."""


async def create(service: Service, exchange: Exchange) -> None:
    """Answer a message request.

    Raises: TreadleError; NotFound with code `thread_not_found`, on which the SDK sends the whole conversation again.
    """
    request = await service.read(exchange, messages.read_request)
    betas, version = _betas(exchange), _version(exchange)
    if betas or version:
        options = msgspec.structs.replace(request.options, betas=betas, api_version=version)
        request = msgspec.structs.replace(request, options=options)
    try:
        await stream.reply(service, exchange, request)
    except NotFound as error:
        raise _thread_not_found(error) from None


async def count_tokens(service: Service, exchange: Exchange) -> None:
    """Estimate the tokens of a request. Raises: TreadleError."""
    request = await service.read(exchange, messages.read_request)
    try:
        count = await tokens.count(service, request, exchange.client)
    except NotFound as error:
        raise _thread_not_found(error) from None
    await exchange.answer_json(200, {"input_tokens": count}, tokens.ESTIMATE)


def _betas(exchange: Exchange) -> tuple[str, ...]:
    """Return the beta features that the client enables: an upstream needs them to understand parts of the body."""
    if _BETA not in exchange.headers:
        return ()
    names = (name.strip() for name in exchange.header(_BETA).split(","))
    return tuple(name for name in names if name and name.isascii() and name.isprintable())


def _version(exchange: Exchange) -> str:
    """Return the API version that the client names, if any.

    Raises: ProtocolError, if it is not a version.
    """
    version = exchange.header(_VERSION).strip()
    if version and not _VERSION_FORM.fullmatch(version):
        raise ProtocolError(
            "Invalid header 'anthropic-version': Expected a date such as '2023-06-01'.",
            code="invalid_value",
            param="anthropic-version",
        )
    return version


def _thread_not_found(error: NotFound) -> NotFound:
    if error.info.code != _LOST:
        return error
    return NotFound(
        "The message that this thread goes on from is not stored.",
        code="thread_not_found",
        param="thread.previous_message_id",
        hint='Send the whole conversation with thread {"type": "create"}.',
    )


_BODY = request("model", "messages", model=TEXT, messages=listed({}), max_tokens=COUNT, stream={}, tools={})
_ROWS = RouteGroup("Messages", MESSAGES_API)
ROUTES = (
    _ROWS.post("/v1/messages", create, "Answer as Anthropic Messages does", streams(ANY), headers=(KEY,), body=_BODY),
    _ROWS.post(
        "/v1/messages/count_tokens",
        count_tokens,
        "Estimate the tokens of a request",
        gives(fields(input_tokens=COUNT)),
        body=_BODY,
    ),
)
