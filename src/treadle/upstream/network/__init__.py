"""The network below the HTTP client: where to, how to get there, and what comes back."""

from treadle.upstream.network.errors import BrokenOff, ConnectTimeout, NoAddress, NoConnection, NoTls, NoTurn
from treadle.upstream.network.pool import Pool

__all__ = ["BrokenOff", "ConnectTimeout", "NoAddress", "NoConnection", "NoTls", "NoTurn", "Pool"]
