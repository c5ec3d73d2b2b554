"""The `http_get` tool, and the HTTP client that refuses private addresses."""

from treadle.tools.web.guarded_client import Fetched, GuardedClient
from treadle.tools.web.http_get import web_tools
from treadle.tools.web.ssrf_guard import WebPolicy

__all__ = ["Fetched", "GuardedClient", "WebPolicy", "web_tools"]
