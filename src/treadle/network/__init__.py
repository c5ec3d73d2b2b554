"""HTTP/1.1 over asyncio and httptools: where to, how to get there, and what comes back.

It does only what asking needs: no redirect, no cookie. It knows no endpoint, no tool and no protocol, and looks inside
no body.
"""

from treadle.network.connection import Take
from treadle.network.errors import (
    BadPacking,
    BrokenOff,
    ConnectTimeout,
    NoAddress,
    NoConnection,
    NoTls,
    NoTurn,
    TooLarge,
)
from treadle.network.pool import Pool, Reply

__all__ = [
    "BadPacking",
    "BrokenOff",
    "ConnectTimeout",
    "NoAddress",
    "NoConnection",
    "NoTls",
    "NoTurn",
    "Pool",
    "Reply",
    "Take",
    "TooLarge",
]
