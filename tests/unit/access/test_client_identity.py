"""What a key may reach."""

import pytest

from treadle.access.client_identity import LOCAL, Client, fits
from treadle.core.errors import Forbidden
from treadle.journal.keys_interface import KeyGrant


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("gpt-5", ("*",), True),
        ("gpt-5", ("gpt-*",), True),
        ("gpt-5", ("GPT-*",), False),
        ("gpt-5", (), False),
        ("gpt-5", ("claude-*", "gpt-5"), True),
        ("a/b", ("a/*",), True),
    ],
)
def test_a_name_fits_one_of_the_patterns(name, patterns, expected):
    """Case counts, and no pattern fits nothing."""
    assert fits(name, patterns) is expected


def test_each_scope_is_checked_and_the_error_names_it():
    """What a key may not use is named, and how to get one that may."""
    client = Client(key_id="key_1", name="ann", grant=KeyGrant(apis=("chat",), models=("gpt-*",), role="viewer"))
    client.check_api("chat")
    client.check_model("gpt-5")
    client.check_role("viewer")
    for refuse, word in (
        (lambda: client.check_api("responses"), "--apis"),
        (lambda: client.check_model("claude-x"), "--models"),
        (lambda: client.check_role("operator"), "--role"),
    ):
        with pytest.raises(Forbidden) as caught:
            refuse()
        assert word in (caught.value.hint or "")
        assert caught.value.info.code == "key_scope"


def test_whoever_is_at_this_machine_may_do_everything():
    """Where no keys are needed."""
    LOCAL.check_api("treadle")
    LOCAL.check_model("any")
    LOCAL.check_role("admin")
