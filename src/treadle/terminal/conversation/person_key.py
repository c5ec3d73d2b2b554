"""Makes a person's key for a server on this machine from the secret beside the journal, which its owner can read."""

import getpass
import os
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from treadle.config import Settings
from treadle.server.auth.installation_secret import is_shared
from treadle.server.auth.page_access import KEY_S, make_gate
from treadle.server.auth.signed_tickets import Tickets
from treadle.server.request_guard import is_loopback


def person_key(settings: Settings, url: str) -> Callable[[], str] | None:
    """Return a function that makes keys for a local server; None for a remote one, which has another secret."""
    if not is_loopback(urlsplit(url).hostname or "") or not is_shared(settings, os.environ):
        return None
    made: list[Tickets] = []

    def make() -> str:
        if not made:
            made.append(make_gate(settings, time.time()).tickets)
        return made[0].key(_user(), "admin", time.time(), KEY_S)

    return make


def _user() -> str:
    try:
        return getpass.getuser()
    except OSError:
        return "admin"
