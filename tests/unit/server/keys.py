"""Clients with keys: makes them at an application, and asks in their name."""

from typing import Any

import msgspec

from treadle.journal.keys_interface import KeyGrant
from treadle.server.app import App
from unit.server.visit import JSON_TYPE, LOCAL, Visit


async def make_key(app: App, name: str, **grant: Any) -> str:
    """Make a key and return its text."""
    _, token = await app.service.clients.keyring.create(name, KeyGrant(**grant))
    return token.text


async def ask(app: App, method: str, path: str, *, key: str = "", body: Any = None, headers: Any = ()) -> Visit:
    """Make a request with a key, if any."""
    given = [LOCAL, JSON_TYPE, *([("authorization", f"Bearer {key}")] if key else []), *headers]
    data = b"" if body is None else msgspec.json.encode(body)
    return await Visit(app, method, path, headers=given, body=data).run()
