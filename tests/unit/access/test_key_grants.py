"""What a key may be given: every field is looked at before the key is made."""

import pytest

from treadle.access.key_grants import APIS, check_grant
from treadle.core.errors import ProtocolError
from treadle.journal.keys_interface import KeyBudget, KeyGrant, KeyRates


@pytest.mark.parametrize("api", [*APIS, "*", "re*"])
def test_apis_and_patterns_of_them_are_good(api: str) -> None:
    """A name, or a pattern that fits one; no tools at all is a wish like another."""
    check_grant(KeyGrant(apis=(api,), tools=()))


@pytest.mark.parametrize(
    ("grant", "param"),
    [
        (KeyGrant(apis=("chats",)), "apis"),
        (KeyGrant(apis=()), "apis"),
        (KeyGrant(models=()), "models"),
        (KeyGrant(models=("a\nb",)), "models"),
        (KeyGrant(tools=("",)), "tools"),
        (KeyGrant(tools=("x" * 201,)), "tools"),
        (KeyGrant(models=("m",) * 101), "models"),
        (KeyGrant(rates=KeyRates(tokens_per_min=-1)), "rates.tokens_per_min"),
        (KeyGrant(budget=KeyBudget(tokens=-1)), "budget.tokens"),
        (KeyGrant(budget=KeyBudget(usd=float("nan"))), "budget.usd"),
        (KeyGrant(budget=KeyBudget(usd=float("inf"))), "budget.usd"),
    ],
)
def test_what_would_be_of_no_use_is_refused(grant: KeyGrant, param: str) -> None:
    """The field is named."""
    with pytest.raises(ProtocolError) as caught:
        check_grant(grant)
    assert caught.value.param == param
