"""Guarded egress for tools, and `http_get` behind it.

Nothing here reads a proxy, a cookie or a credential from anywhere.
"""

from treadle.tools.web.guarded_client import Fetched, GuardedClient
from treadle.tools.web.http_get import web_tools
from treadle.tools.web.ssrf_guard import Policy

__all__ = ["Fetched", "GuardedClient", "Policy", "web_tools"]
