"""The keyring: creates, verifies, lists and revokes API keys."""

import asyncio
import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from treadle.access.client_identity import Client, client_of
from treadle.access.key_grants import check_grant
from treadle.access.key_token import PEPPER_BYTES_MIN, Token, is_proved, mac_of, new_token, read_token
from treadle.core.errors import ConfigError, NotFound, ProtocolError, StoreError, Unauthorised
from treadle.core.ids import KEY, IdSource
from treadle.core.shared_ports import Clock
from treadle.journal.keys_interface import KeyGrant, KeyRow, KeyStore

log = logging.getLogger("treadle.access")

KNOWN_S = 2.0
"""How long a key that was read is cached: a key revoked by another process is refused here after that."""
KNOWN_MAX = 4_096
OUTAGE_S = 600.0
"""How long a cached key is used while the store is unavailable, by routes that must answer then."""
OUTAGE_WAIT_S = 0.5
NAME_CHARS_MAX = 100
EXPIRES_S_MAX = 100 * 366 * 86_400.0
"""A century: a key that lives longer need not expire, and dates after the year 9999 cannot be formatted."""

_ANOTHER = "ask whoever runs the server for another: `treadle keys create NAME`"


def fingerprint_of(pepper: bytes) -> str:
    """Return a fingerprint of the server's secret, which reveals nothing else of it."""
    return hmac.digest(pepper, b"treadle:fingerprint", hashlib.sha256).hex()[:16]


class Keyring:
    """The keys of one store. `pepper` is the server's secret, without which stored hashes cannot be verified.

    `proved` is called once, with the fingerprint of the secret under which a key was made or verified.
    """

    def __init__(
        self,
        keys: KeyStore,
        pepper: bytes,
        *,
        clock: Clock,
        ids: IdSource,
        proved: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        if len(pepper) < PEPPER_BYTES_MIN:
            raise ConfigError(f"the pepper of keys must have at least {PEPPER_BYTES_MIN} bytes", param="TREADLE_SECRET")
        self._keys = keys
        self._pepper = pepper
        self._clock = clock
        self._ids = ids
        self._known: OrderedDict[str, tuple[float, KeyRow | None]] = OrderedDict()
        self._logged: set[str] = set()
        self._revoked = 0
        self._proved = proved

    async def create(self, name: str, grant: KeyGrant, *, expires_in_s: float | None = None) -> tuple[KeyRow, Token]:
        """Create a key and store its hash. The token can only be shown now.

        Raises: ProtocolError, naming the field; Conflict, where the name is taken; StoreError.
        """
        if not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise ProtocolError(f"A key's name has 1 to {NAME_CHARS_MAX} printable characters.", param="name")
        if expires_in_s is not None and not 0 < expires_in_s <= EXPIRES_S_MAX:
            message = "A key must expire later than now, and within a hundred years."
            raise ProtocolError(message, param="expires_s", hint="without this it never does")
        check_grant(grant)
        token, now = new_token(), self._clock.now()
        row = KeyRow(
            id=self._ids.new(KEY),
            name=name,
            lookup=token.lookup,
            mac=mac_of(token, self._pepper),
            created_at=now,
            grant=grant,
            expires_at=None if expires_in_s is None else now + expires_in_s,
        )
        await self._keys.add(row)
        self._known.pop(token.lookup, None)
        await self._note_secret()
        return row, token

    async def check(self, text: str | None, *, outlives_store: bool = False) -> Client:
        """Return the client of a key. With `outlives_store` a cached key is accepted while the store is unavailable.

        Raises: Unauthorised, with details only for the holder of the key; StoreError.
        """
        if not text:
            raise Unauthorised(
                "This server wants a key, and none came with the request.",
                code="missing_api_key",
                hint="send it as 'Authorization: Bearer tr_…' or as your API does; treadle keys create makes one",
            )
        token = read_token(text)
        find = self._find_quickly if outlives_store else self._find
        row = None if token is None else await find(token.lookup)
        if token is None or not is_proved(token, None if row is None else row.mac, self._pepper) or row is None:
            if token is not None and row is not None:
                self._log_unproved(row)
            raise Unauthorised(
                "The key is not one of this server's.",
                hint="check that it was copied whole; `treadle keys list` shows which there are, `treadle doctor "
                "--key-env NAME` why one is refused",
            )
        if row.revoked_at is not None:
            raise Unauthorised(f"The key {row.name!r} was revoked.", code="revoked_api_key", hint=_ANOTHER)
        if row.expires_at is not None and row.expires_at <= self._clock.now():
            raise Unauthorised(f"The key {row.name!r} has expired.", code="expired_api_key", hint=_ANOTHER)
        if self._proved is not None:
            await self._note_secret()
        return client_of(row)

    async def page(self, limit: int = 200, *, before: str | None = None) -> list[KeyRow]:
        """Return keys, newest first."""
        return await self._keys.page(limit, before=before)

    async def revoke(self, id_or_name: str) -> KeyRow:
        """Revoke a key permanently; in this process it takes effect at once.

        Raises: NotFound, StoreError.
        """
        row = await self._keys.revoke(id_or_name, self._clock.now())
        self._revoked += 1
        if row is None:
            raise NotFound(f"There is no key {id_or_name!r}.", hint="`treadle keys list` shows which there are")
        self._known.pop(row.lookup, None)
        return row

    def _log_unproved(self, row: KeyRow) -> None:
        """Log once for each key that it exists but its secret does not match; the client gets no such detail."""
        if row.id not in self._logged:
            self._logged.add(row.id)
            log.warning(
                "the key %s is refused: it was copied wrongly, or made when TREADLE_SECRET or secret.key was another",
                row.id,
            )

    async def _note_secret(self) -> None:
        """Record once that keys are verified under this secret; if that fails, the next key tries again."""
        proved, self._proved = self._proved, None
        if proved is None:
            return
        try:
            await proved(fingerprint_of(self._pepper))
            proved = None
        except StoreError:
            pass
        finally:
            self._proved = proved  # also when the client has disconnected

    async def _find_quickly(self, lookup: str) -> KeyRow | None:
        """Return the key, or the recently cached one if it cannot be read quickly."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(OUTAGE_WAIT_S):
                return await self._find(lookup)
        read_at, row = self._known.get(lookup, (float("-inf"), None))
        if self._clock.monotonic() - read_at < OUTAGE_S:
            return row
        raise StoreError("the key cannot be read just now")

    async def _find(self, lookup: str) -> KeyRow | None:
        """Return the key with this lookup, at most KNOWN_S old."""
        now = self._clock.monotonic()
        read_at, row = self._known.get(lookup, (-KNOWN_S, None))
        if now - read_at < KNOWN_S:
            return row
        revoked = self._revoked
        row = await self._keys.find(lookup)
        if revoked != self._revoked:
            return row  # a key was revoked during the read, so the row may be outdated: do not cache it
        self._known[lookup] = now, row
        self._known.move_to_end(lookup)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return row
