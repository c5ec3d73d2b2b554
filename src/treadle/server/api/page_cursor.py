"""Reads the cursor of a list. It must name an item of the client's own, so that it does not reveal other keys' ids."""

from typing import Protocol

from treadle.core.errors import NotFound
from treadle.server.http_exchange import Exchange


class Find(Protocol):
    """Finds an item of a key by its id."""

    async def __call__(self, before: str, /, *, key_id: str | None) -> object | None:
        """Return it, if it is there."""
        ...


async def read_before(exchange: Exchange, find: Find) -> str | None:
    """Return the id in `?before`.

    Raises: NotFound, the same for a missing item and for another key's.
    """
    before = exchange.query().get("before")
    if before is not None and exchange.reach is not None and await find(before, key_id=exchange.reach) is None:
        raise NotFound(f"There is no {before!r} to go on after.", param="before")
    return before
