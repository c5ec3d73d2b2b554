"""Signed tickets: the content of one-time links, login cookies and persons' keys. Pure except for randomness.

A link is valid for one login, within a few minutes. The process that redeems it records that. Without a journal, a
process accepts no link older than itself, so that a restart does not make a used link valid again. A cookie is valid in
every process with the same secret until it expires or its owner logs out. A person's key is valid until it expires. It
is for programs of the person who can read the secret, such as `treadle chat --server`.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

Kind = Literal["link", "cookie", "key"]
Scope = Literal["viewer", "operator", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""In ascending order: each scope includes those before it."""

PERSON_KEY = "tr_person_"
"""The prefix of a person's key, which distinguishes it from keys of programs."""

TICKET_CHARS_MAX = 2_048
SECRET_BYTES = 32
REMEMBERED_MAX = 10_000
"""How many used links and ended logins are stored; the oldest have expired long before."""


class SignedTicket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed content: the person, their scope, and the period of validity."""

    kind: Kind
    id: str
    name: str
    scope: Scope
    made_at: float
    expires_at: float


class Tickets:
    """Signs tickets and verifies them."""

    def __init__(self, secret: bytes, started_at: float) -> None:
        assert len(secret) >= SECRET_BYTES, "a secret that can be guessed is none"
        self._secret = secret
        self._started_at = started_at
        self._spent: dict[str, float] = {}

    def link(self, name: str, scope: Scope, now: float, seconds: float) -> str:
        """Write the ticket of a one-time link."""
        return self._write(_new_ticket("link", name, scope, now, seconds))

    def link_of(self, text: str, now: float) -> SignedTicket | None:
        """Return a link's ticket; None for one that is used, expired, too old or not signed by us."""
        link = self._read(text, "link", now)
        return None if link is None or link.made_at < self._started_at else link

    def mark_spent(self, spent: Iterable[str], until: float) -> None:
        """Invalidate tickets that were used or ended in other processes."""
        for ticket_id in spent:
            self._spent.setdefault(ticket_id, until)

    def redeem(self, text: str, now: float, seconds: float) -> tuple[str, SignedTicket] | None:
        """Exchange a link's ticket for a cookie; None for one that is used, expired or not signed by us."""
        link = self.link_of(text, now)
        return None if link is None else self.admit(link, now, seconds)

    def admit(self, link: SignedTicket, now: float, seconds: float) -> tuple[str, SignedTicket]:
        """Return the cookie for an unused link, and mark the link as used."""
        self._spend(link, now)
        cookie = _new_ticket("cookie", link.name, link.scope, now, seconds)
        return self._write(cookie), cookie

    def cookie(self, text: str, now: float) -> SignedTicket | None:
        """Return a cookie's ticket; None for one that is ended, expired or not signed by us."""
        return self._read(text, "cookie", now)

    def key(self, name: str, scope: Scope, now: float, seconds: float) -> str:
        """Write a person's key."""
        return PERSON_KEY + self._write(_new_ticket("key", name, scope, now, seconds))

    def holder(self, text: str, now: float) -> SignedTicket | None:
        """Return the ticket of a person's key; None for one that is expired or not signed by us."""
        return self._read(text[len(PERSON_KEY) :], "key", now) if text.startswith(PERSON_KEY) else None

    def end(self, cookie: SignedTicket, now: float) -> None:
        """Invalidate a cookie in this process."""
        self._spend(cookie, now)

    def _write(self, ticket: SignedTicket) -> str:
        body = base64.urlsafe_b64encode(msgspec.json.encode(ticket)).rstrip(b"=")
        return f"{body.decode()}.{self._sign(body)}"

    def _read(self, text: str, kind: Kind, now: float) -> SignedTicket | None:
        body, dot, signature = text.partition(".")
        if not dot or len(text) > TICKET_CHARS_MAX or not text.isascii():
            return None
        if not hmac.compare_digest(self._sign(body.encode()), signature):
            return None
        ticket = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=SignedTicket)
        is_good = ticket.kind == kind and now < ticket.expires_at and ticket.id not in self._spent
        return ticket if is_good else None

    def _sign(self, body: bytes) -> str:
        digest = hmac.digest(self._secret, body, hashlib.sha256)
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def _spend(self, ticket: SignedTicket, now: float) -> None:
        self._spent = {each: until for each, until in self._spent.items() if until > now}
        while len(self._spent) >= REMEMBERED_MAX:
            del self._spent[next(iter(self._spent))]
        self._spent[ticket.id] = ticket.expires_at


def covers(scope: Scope, needed: Scope) -> bool:
    """Return whether a scope includes the one that is needed."""
    return SCOPES.index(scope) >= SCOPES.index(needed)


def _new_ticket(kind: Kind, name: str, scope: Scope, now: float, seconds: float) -> SignedTicket:
    fresh = secrets.token_urlsafe(12)
    return SignedTicket(kind=kind, id=fresh, name=name, scope=scope, made_at=now, expires_at=now + seconds)
