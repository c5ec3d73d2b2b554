"""The credential of tests that decide: the servers of the tests share a secret, so a key made here is good at each."""

import os
import time

from treadle.server.auth.installation_secret import VARIABLE, secret_for
from treadle.server.auth.signed_tickets import Scope, Tickets

os.environ[VARIABLE] = "only-for-tests-" + "0" * 32


def person_key(name: str = "ada", scope: Scope = "admin") -> str:
    """Return a person's key."""
    tickets = Tickets(secret_for("login", os.environ[VARIABLE].encode()), started_at=0.0)
    return tickets.key(name, scope, time.time() - 1.0, 86_400.0)


def person_headers(name: str = "ada", scope: Scope = "admin") -> dict[str, str]:
    """Return the header by which a request is a person's."""
    return {"authorization": f"Bearer {person_key(name, scope)}"}
