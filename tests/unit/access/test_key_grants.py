"""What a key may be given: every field is looked at before the key is made."""

import pytest

from treadle.access.key_grants import APIS, check_grant
from treadle.core.errors import ProtocolError
from treadle.journal.keys_interface import Budget, Grant, Rates


@pytest.mark.parametrize("api", [*APIS, "*", "re*"])
def test_apis_and_patterns_of_them_are_good(api: str) -> None:
    """A name, or a pattern that fits one; no tools at all is a wish like another."""
    check_grant(Grant(apis=(api,), tools=()))


@pytest.mark.parametrize(
    ("grant", "param"),
    [
        (Grant(apis=("chats",)), "apis"),
        (Grant(apis=()), "apis"),
        (Grant(models=()), "models"),
        (Grant(models=("a\nb",)), "models"),
        (Grant(tools=("",)), "tools"),
        (Grant(tools=("x" * 201,)), "tools"),
        (Grant(models=("m",) * 101), "models"),
        (Grant(rates=Rates(tokens_per_min=-1)), "rates.tokens_per_min"),
        (Grant(budget=Budget(tokens=-1)), "budget.tokens"),
        (Grant(budget=Budget(usd=float("nan"))), "budget.usd"),
        (Grant(budget=Budget(usd=float("inf"))), "budget.usd"),
    ],
)
def test_what_would_be_of_no_use_is_refused(grant: Grant, param: str) -> None:
    """The field is named."""
    with pytest.raises(ProtocolError) as caught:
        check_grant(grant)
    assert caught.value.param == param
