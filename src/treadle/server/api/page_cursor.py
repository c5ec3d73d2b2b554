"""Where a list goes on: only after something of the client's own, so that a cursor tells of nobody else's things."""

from typing import Protocol

from treadle.core.errors import NotFound
from treadle.server.http_exchange import Exchange


class Find(Protocol):
    """Finds something by its id, among the things of a key."""

    async def __call__(self, before: str, /, *, key_id: str | None) -> object | None:
        """Return it, if it is there."""
        ...


async def read_before(exchange: Exchange, find: Find) -> str | None:
    """Return the id in `?before`.

    Raises: NotFound, alike for what never was and for what is another key's.
    """
    before = exchange.query().get("before")
    if before is not None and exchange.reach is not None and await find(before, key_id=exchange.reach) is None:
        raise NotFound(f"There is no {before!r} to go on after.", param="before")
    return before
