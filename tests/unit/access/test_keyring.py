"""The keyring: who gets in, who does not, and what they are told."""

import pytest

from treadle.access.keyring import EXPIRES_S_MAX, KNOWN_MAX, KNOWN_S, Keyring
from treadle.core.errors import ConfigError, Conflict, NotFound, ProtocolError, Unauthorised
from treadle.core.ids import CountingIds
from treadle.journal.keys_interface import KeyGrant
from treadle.journal.open_store import open_store
from treadle.journal.store_url import MEMORY

PEPPER = b"p" * 32


class Timer:
    """Time that is set."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


@pytest.fixture
async def kept():
    """A store's keys, counted when they are read."""
    store = open_store(MEMORY)
    await store.open()
    yield store.keys
    await store.close()


@pytest.fixture
def timer():
    """A clock."""
    return Timer()


@pytest.fixture
def ring(kept, timer):
    """A keyring over that store."""
    return Keyring(kept, PEPPER, clock=timer, ids=CountingIds())


async def test_who_holds_a_key_is_who_it_was_made_for(ring):
    """With what it was granted."""
    row, token = await ring.create("ann", KeyGrant(models=("gpt-*",), role="viewer"))
    client = await ring.check(token.text)
    assert (client.key_id, client.name, client.grant) == (row.id, "ann", row.grant)


async def test_what_is_kept_does_not_hold_the_key(ring):
    """Neither whole nor in part."""
    row, token = await ring.create("ann", KeyGrant())
    assert token.secret not in repr(row)
    assert row.mac != bytes.fromhex(token.secret)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "missing_api_key"),
        ("", "missing_api_key"),
        ("sk-other", "invalid_api_key"),
        ("tr_0123456789abcdef_" + "0" * 64, "invalid_api_key"),
        ("ключ", "invalid_api_key"),
        ("x" * 1_000_000, "invalid_api_key"),
    ],
    ids=["none", "empty", "foreign", "unknown", "not ascii", "megabyte"],
)
async def test_who_has_no_key_of_ours_stays_outside(ring, text, code):
    """And is told how to send one, if none came."""
    with pytest.raises(Unauthorised) as caught:
        await ring.check(text)
    assert caught.value.info.code == code
    assert "x" * 200 not in caught.value.message


async def test_a_wrong_secret_says_nothing_of_the_key_it_was_tried_with(ring):
    """Not its name, not whether it was revoked."""
    row, token = await ring.create("ann", KeyGrant())
    await ring.revoke("ann")
    with pytest.raises(Unauthorised) as caught:
        await ring.check(token.text[:-1] + ("0" if token.text[-1] != "0" else "1"))
    assert caught.value.info.code == "invalid_api_key"
    assert row.name not in caught.value.message


async def test_a_revoked_key_is_refused_at_once(ring):
    """Although it was just checked."""
    _, token = await ring.create("ann", KeyGrant())
    await ring.check(token.text)
    await ring.revoke("ann")
    with pytest.raises(Unauthorised, match="revoked"):
        await ring.check(token.text)


async def test_what_was_read_while_a_key_was_revoked_is_not_relied_on(kept, ring, monkeypatch):
    """A check that was on its way when the revocation came must not make the key good for two seconds more."""
    _, token = await ring.create("ann", KeyGrant())
    find = kept.find

    async def find_late(lookup):
        row = await find(lookup)
        monkeypatch.undo()
        await ring.revoke("ann")
        return row

    monkeypatch.setattr(kept, "find", find_late)
    await ring.check(token.text)
    with pytest.raises(Unauthorised, match="revoked"):
        await ring.check(token.text)


async def test_a_key_that_another_process_revoked_is_refused_soon(kept, timer, ring):
    """As soon as what was read of it is too old."""
    _, token = await ring.create("ann", KeyGrant())
    await ring.check(token.text)
    await Keyring(kept, PEPPER, clock=timer, ids=CountingIds()).revoke("ann")
    await ring.check(token.text)
    timer.time += KNOWN_S
    with pytest.raises(Unauthorised, match="revoked"):
        await ring.check(token.text)


async def test_a_key_expires_to_the_second_also_when_it_was_just_read(timer, ring):
    """What is remembered of it does not make it live longer."""
    _, token = await ring.create("ann", KeyGrant(), expires_in_s=1.0)
    await ring.check(token.text)
    timer.time += 1.0
    with pytest.raises(Unauthorised, match="expired"):
        await ring.check(token.text)


async def test_a_key_is_read_once_in_a_while(monkeypatch, kept, timer):
    """However often it is used; and unknown ones do not fill the memory."""
    ring = Keyring(kept, PEPPER, clock=timer, ids=CountingIds())
    _, token = await ring.create("ann", KeyGrant())
    reads: list[str] = []
    find = type(kept).find

    async def counted(self, lookup):
        reads.append(lookup)
        return await find(self, lookup)

    monkeypatch.setattr(type(kept), "find", counted)
    for _ in range(5):
        await ring.check(token.text)
    assert len(reads) == 1
    for number in range(KNOWN_MAX + 10):
        with pytest.raises(Unauthorised):
            await ring.check(f"tr_{number:016x}_{'0' * 64}")
    assert len(ring._known) == KNOWN_MAX


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 101])
async def test_a_name_is_something_people_can_read(ring, name):
    """The field is named."""
    with pytest.raises(ProtocolError) as caught:
        await ring.create(name, KeyGrant())
    assert caught.value.param == "name"


async def test_a_name_is_taken_once_and_a_key_must_live(ring):
    """Two keys of one name could not be told apart."""
    await ring.create("ann", KeyGrant())
    with pytest.raises(Conflict):
        await ring.create("ann", KeyGrant())
    for span_s in (0.0, -1.0, EXPIRES_S_MAX + 1, float("inf"), float("nan")):
        with pytest.raises(ProtocolError) as caught:
            await ring.create("bob", KeyGrant(), expires_in_s=span_s)
        assert caught.value.param == "expires_s"
    with pytest.raises(NotFound):
        await ring.revoke("bob")


def test_a_short_pepper_is_refused(kept, timer):
    """It would be guessed."""
    with pytest.raises(ConfigError):
        Keyring(kept, b"short", clock=timer, ids=CountingIds())
