"""A Treadle that keeps what every client asked and how it was answered: method, path, status and both bodies."""

import threading
from typing import Any

import msgspec

from gateway.gateway import Gateway
from treadle.server.app import App


class Exchange(msgspec.Struct, kw_only=True):
    """One request of a client and its answer."""

    method: str
    path: str
    headers: dict[str, str]
    asked: bytes = b""
    status: int = 0
    answered: bytes = b""
    is_answered: bool = False


class Watched(Gateway):
    """A gateway whose `exchanges` are what its clients did, in the order of asking.

    `abandoned` is set when one of them goes away before it has the whole answer.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.exchanges: list[Exchange] = []
        self.abandoned = threading.Event()

    @property
    def refused(self) -> list[tuple[str, str, int, bytes]]:
        """Return what was answered with an error."""
        return [(each.method, each.path, each.status, each.answered) for each in self.exchanges if each.status >= 400]

    async def _serve(self, app: App) -> None:
        async def watch(scope: Any, receive: Any, send: Any) -> None:
            exchange = Exchange(
                method=scope["method"],
                path=scope["path"],
                headers={name.decode(): value.decode() for name, value in scope["headers"]},
            )
            self.exchanges.append(exchange)

            async def hear() -> Any:
                message = await receive()
                exchange.asked += message.get("body", b"")
                if message["type"] == "http.disconnect" and not exchange.is_answered:
                    self.abandoned.set()
                return message

            async def say(message: Any) -> None:
                exchange.status = message.get("status", exchange.status)
                exchange.answered += message.get("body", b"")
                exchange.is_answered = message["type"] == "http.response.body" and not message.get("more_body")
                await send(message)

            await app(scope, hear, say)

        await super()._serve(watch)
