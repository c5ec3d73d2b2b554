"""Guarded egress for tools, and `http_get` behind it.

Nothing here reads a proxy, a cookie or a credential from anywhere.
"""

from treadle.tools.web.address import Policy
from treadle.tools.web.client import Fetched, GuardedClient
from treadle.tools.web.fetch import web_tools

__all__ = ["Fetched", "GuardedClient", "Policy", "web_tools"]
