"""The `http_get` tool: fetches one page or text file of the public web. Off by default."""

import codecs
import hashlib
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec

from treadle.core.json import cut_text, write_json
from treadle.core.tool_definitions import Envelope, ToolPolicy
from treadle.tools.function_tools import Tool, function_tool
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext
from treadle.tools.web.guarded_client import Fetched, GuardedClient

ENVELOPE_BYTES = 1_000
"""The most bytes of JSON around the text, without the URL."""
SNIFFED_BYTES = 1_024
TIMEOUT_MARGIN_S = 2.0
_COMMON_CODECS = re.compile(r"^(ascii|utf-|utf_|iso8859|cp\d|koi8|shift_jis|euc_|gb|big5|mac)")


def web_tools(client: GuardedClient) -> list[Tool]:
    """Return the tools that use the client."""
    policy = ToolPolicy(effect="read", parallel=True, egress=True, timeout_s=client.policy.timeout_s + TIMEOUT_MARGIN_S)
    return [function_tool(make_http_get(client), policy=policy, source="web").placed("guarded")]


def make_http_get(client: GuardedClient) -> Callable[..., Coroutine[Any, Any, ToolAnswer]]:
    """Return the tool's function."""

    async def http_get(context: ToolContext, url: Annotated[str, msgspec.Meta(min_length=8)]) -> ToolAnswer:
        """Fetch a page or a text file of the public web. Redirects are followed.

        Args:
            url: Its address, beginning with https:// or http://.
        """
        fetched = await client.get(url)
        body: dict[str, Any] = {
            "status": fetched.status,
            "url": fetched.url,
            "content_type": fetched.content_type,
            **_content(fetched, context.output_bytes_max - ENVELOPE_BYTES - len(fetched.url)),
        }
        summary = f"{fetched.status}, {len(fetched.body)} bytes of {fetched.content_type}"
        return ToolAnswer(envelope=Envelope(ok=True, data=msgspec.Raw(write_json(body))), summary=summary)

    return http_get


def _content(fetched: Fetched, room: int) -> dict[str, Any]:
    """Return as much of the text as fits, or the size and digest of binary content."""
    if b"\0" in fetched.body[:SNIFFED_BYTES]:
        digest = hashlib.sha256(fetched.body).hexdigest()
        return {"bytes": len(fetched.body), "sha256": digest, **({"truncated": True} if fetched.is_cut else {})}
    text = fetched.body.decode(_encoding(fetched.charset), "replace")
    shown = text
    while shown and (size := len(write_json(shown))) > room:
        shown = cut_text(shown, int(len(shown.encode()) * min(0.9, max(room, 0) / size)))
    return {"body": shown, **({"truncated": True} if fetched.is_cut or len(shown) < len(text) else {})}


def _encoding(charset: str | None) -> str:
    """Return the page's encoding if it is a common one: some of Python's codecs take quadratic time."""
    try:
        name = codecs.lookup(charset or "utf-8").name
    except LookupError:
        return "utf-8"
    return name if _COMMON_CODECS.match(name) else "utf-8"
