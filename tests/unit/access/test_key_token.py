"""The text of a key: what it looks like, what is refused, what proves it."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treadle.access.key_token import Token, is_proved, mac_of, new_token, read_token

PEPPER = b"p" * 32


def test_a_new_key_is_read_back_and_proved():
    """By the server that made it, and by no other."""
    token = new_token()
    read = read_token(token.text)
    assert read == token
    assert is_proved(token, mac_of(token, PEPPER), PEPPER)
    assert not is_proved(token, mac_of(token, PEPPER), b"q" * 32)


def test_no_two_keys_are_alike_and_none_shows_itself():
    """The secret is in the text alone."""
    first, second = new_token(), new_token()
    assert first.lookup != second.lookup
    assert first.secret != second.secret
    assert first.secret not in repr(first)


def test_nothing_is_proved_where_no_key_is_kept():
    """Not even by a key whose hash would be all zeros."""
    assert not is_proved(new_token(), None, PEPPER)


def test_a_key_with_another_s_lookup_is_not_that_other_s():
    """The lookup is part of what is proved."""
    mine, yours = new_token(), new_token()
    assert not is_proved(Token(yours.lookup, mine.secret), mac_of(yours, PEPPER), PEPPER)
    assert not is_proved(Token(yours.lookup, mine.secret), mac_of(mine, PEPPER), PEPPER)


@pytest.mark.parametrize(
    "text",
    ["", "tr", "tr__", "sk-123", "tr_é_é", "tr_" + "a" * 1_000_000, "\x00", "tr_0123456789abcdef_" + "g" * 64],
    ids=["empty", "prefix", "bare", "foreign", "accents", "megabyte", "nul", "not hex"],
)
def test_what_cannot_be_a_key_is_none(text):
    """Whatever its length."""
    assert read_token(text) is None


@given(st.text())
def test_any_text_is_read_without_harm(text):
    """A key or nothing."""
    token = read_token(text)
    assert token is None or token.text == text


def test_what_stands_before_or_after_a_key_makes_it_none():
    """Nothing is stripped here: a line break must not slip through."""
    text = new_token().text
    for odd in (f" {text}", f"{text} ", f"{text}\n", text.upper(), text[:-1]):
        assert read_token(odd) is None
