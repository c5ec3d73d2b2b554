"""Tickets: only those we signed, each link once, each cookie for its time."""

import base64

import msgspec
import pytest

from treadle.server.auth.signed_tickets import SCOPES, Scope, Tickets, covers

SECRET = b"s" * 32
HOUR = 3600.0


@pytest.fixture
def tickets() -> Tickets:
    """Those of a process that began at 100."""
    return Tickets(SECRET, started_at=100.0)


def test_a_link_becomes_a_cookie_of_the_same_name_and_scope(tickets: Tickets) -> None:
    """The cookie then says who it is of, until its time is over."""
    link = tickets.link("ada", "operator", 100.0, 600.0)
    made = tickets.redeem(link, 200.0, HOUR)
    assert made is not None
    text, cookie = made
    assert (cookie.name, cookie.scope, cookie.expires_at) == ("ada", "operator", 200.0 + HOUR)
    assert tickets.cookie(text, 200.0 + HOUR - 1) == cookie
    assert tickets.cookie(text, 200.0 + HOUR) is None


def test_a_link_is_good_once_and_for_its_time(tickets: Tickets) -> None:
    """A second use is refused, and so is a late one."""
    link = tickets.link("ada", "viewer", 100.0, 600.0)
    assert tickets.redeem(link, 699.0, HOUR) is not None
    assert tickets.redeem(link, 699.0, HOUR) is None
    late = tickets.link("ada", "viewer", 100.0, 600.0)
    assert tickets.redeem(late, 700.0, HOUR) is None


def test_a_restart_makes_no_used_link_good_again(tickets: Tickets) -> None:
    """A process takes no link that is older than itself; cookies live on where the secret is the same."""
    link = tickets.link("ada", "admin", 100.0, 600.0)
    made = tickets.redeem(link, 110.0, HOUR)
    assert made is not None
    restarted = Tickets(SECRET, started_at=120.0)
    assert restarted.redeem(link, 130.0, HOUR) is None
    assert restarted.cookie(made[0], 130.0) is not None
    assert Tickets(b"t" * 32, started_at=0.0).cookie(made[0], 130.0) is None


def test_an_ended_login_is_over(tickets: Tickets) -> None:
    """Whoever kept the cookie has nothing."""
    made = tickets.redeem(tickets.link("ada", "admin", 100.0, 600.0), 110.0, HOUR)
    assert made is not None
    tickets.end(made[1], 120.0)
    assert tickets.cookie(made[0], 121.0) is None


@pytest.mark.parametrize("text", ["", ".", "a.b", "x" * 5000, "é.é", "eyJ9.AAAA", "....", "\x00.\x00"])
def test_what_we_did_not_write_is_nobody(tickets: Tickets, text: str) -> None:
    """Whatever it is, it is no error either."""
    assert tickets.cookie(text, 100.0) is None
    assert tickets.redeem(text, 100.0, HOUR) is None


def test_a_changed_ticket_is_refused(tickets: Tickets) -> None:
    """More scope, a longer life, or a link passed off as a cookie: the signature is of all of it."""
    link = tickets.link("ada", "viewer", 100.0, 600.0)
    body, _, signature = link.partition(".")
    fields = msgspec.json.decode(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(msgspec.json.encode({**fields, "scope": "admin"})).decode().rstrip("=")
    assert tickets.redeem(f"{forged}.{signature}", 100.0, HOUR) is None
    assert tickets.redeem(f"{body}.{signature[:-2]}AA", 100.0, HOUR) is None
    assert tickets.cookie(link, 100.0) is None
    made = tickets.redeem(link, 100.0, HOUR)
    assert made is not None
    assert tickets.redeem(made[0], 100.0, HOUR) is None


def test_what_is_remembered_is_bounded(tickets: Tickets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Used links are forgotten when they are late anyway, or when there are too many."""
    monkeypatch.setattr("treadle.server.auth.signed_tickets.REMEMBERED_MAX", 40)
    for number in range(40 + 5):
        link = tickets.link("ada", "viewer", 100.0, 600.0)
        assert tickets.redeem(link, 100.0, 1.0) is not None
        if number % 10 == 0:
            assert tickets.redeem(link, 100.0, 1.0) is None
    assert len(tickets._spent) == 40


@pytest.mark.parametrize("has", SCOPES)
@pytest.mark.parametrize("needs", SCOPES)
def test_each_scope_holds_those_before_it(has: Scope, needs: Scope) -> None:
    """viewer, operator, admin, in that order."""
    assert covers(has, needs) == (SCOPES.index(has) >= SCOPES.index(needs))
