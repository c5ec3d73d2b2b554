"""The keyring: makes keys, checks the ones that clients bring, revokes them."""

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
"""How long what was read of a key is relied on: a key revoked elsewhere is refused here after that."""
KNOWN_MAX = 4_096
OUTAGE_S = 600.0
"""How long a key that was read is relied on where the store is away, by routes that must answer then."""
OUTAGE_WAIT_S = 0.5
NAME_CHARS_MAX = 100
EXPIRES_S_MAX = 100 * 366 * 86_400.0
"""A century: what lives longer need not expire, and later days than the year 9999 nobody can write."""

_ANOTHER = "ask whoever runs the server for another: `treadle keys create NAME`"


def fingerprint_of(pepper: bytes) -> str:
    """Return what tells secrets apart and nothing else of them."""
    return hmac.digest(pepper, b"treadle:fingerprint", hashlib.sha256).hex()[:16]


class Keyring:
    """Fits one store. `pepper` is a secret of the server's: without it, what is stored proves no key.

    `proved` is called once with the fingerprint of the secret that a key was made or proved under.
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
        self._told: set[str] = set()
        self._revoked = 0
        self._proved = proved

    async def create(self, name: str, grant: KeyGrant, *, expires_in_s: float | None = None) -> tuple[KeyRow, Token]:
        """Make a key and keep what proves it. The token is shown now or never.

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
        """Return whose key this is; as it was known last, where the store is away and the answer needs none of it.

        Raises: Unauthorised, saying no more to who does not hold the key; StoreError.
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
                self._tell_unproved(row)
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
        """Revoke a key, for ever; where this process checks it, at once.

        Raises: NotFound, StoreError.
        """
        row = await self._keys.revoke(id_or_name, self._clock.now())
        self._revoked += 1
        if row is None:
            raise NotFound(f"There is no key {id_or_name!r}.", hint="`treadle keys list` shows which there are")
        self._known.pop(row.lookup, None)
        return row

    def _tell_unproved(self, row: KeyRow) -> None:
        """Tell the operator, once a key, what a stranger is not told: that there is such a key, made otherwise."""
        if row.id not in self._told:
            self._told.add(row.id)
            log.warning(
                "the key %s is refused: it was copied wrongly, or made when TREADLE_SECRET or secret.key was another",
                row.id,
            )

    async def _note_secret(self) -> None:
        """Note that keys are proved under this secret, once; where that fails, the next key tries again."""
        proved, self._proved = self._proved, None
        if proved is None:
            return
        try:
            await proved(fingerprint_of(self._pepper))
            proved = None
        except StoreError:
            pass
        finally:
            self._proved = proved  # also where the client left meanwhile

    async def _find_quickly(self, lookup: str) -> KeyRow | None:
        """Return the key as it was read last, where it cannot be read at once and that is not too long ago."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(OUTAGE_WAIT_S):
                return await self._find(lookup)
        read_at, row = self._known.get(lookup, (float("-inf"), None))
        if self._clock.monotonic() - read_at < OUTAGE_S:
            return row
        raise StoreError("the key cannot be read just now")

    async def _find(self, lookup: str) -> KeyRow | None:
        """Return the key with this lookup, as it was a moment ago."""
        now = self._clock.monotonic()
        read_at, row = self._known.get(lookup, (-KNOWN_S, None))
        if now - read_at < KNOWN_S:
            return row
        revoked = self._revoked
        row = await self._keys.find(lookup)
        if revoked != self._revoked:
            return row  # it may have been read before what was revoked just now, and is not relied on
        self._known[lookup] = now, row
        self._known.move_to_end(lookup)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return row
