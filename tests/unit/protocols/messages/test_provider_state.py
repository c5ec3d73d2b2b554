import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.items import Blob, ReasoningItem
from treadle.protocols.messages.provider_state import read_reasoning, real_id, shown_id, shown_reasoning

blobs = st.builds(
    Blob,
    provider=st.sampled_from(["anthropic", "mini", "openai"]),
    kind=st.sampled_from(["signature", "redacted", "encrypted_content"]),
    data=st.text(min_size=1, max_size=9),
    model=st.sampled_from(["", "m"]),
)


@given(call_id=st.text(max_size=20) | st.from_regex(r"x64_[A-Za-z0-9_-]{0,8}", fullmatch=True))
def test_every_id_survives_the_way_to_a_client_and_back(call_id: str) -> None:
    """What a client sees is of the API's alphabet, and different ids stay different."""
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", shown_id(call_id))
    assert real_id(shown_id(call_id)) == call_id


@given(shown=st.text(max_size=20) | st.from_regex(r"x64_[A-Za-z0-9_=-]{0,8}", fullmatch=True))
def test_reading_an_id_of_anybody_never_raises(shown: str) -> None:
    """What is not ours is taken as it is, and shown again as something that reads the same."""
    assert real_id(shown_id(real_id(shown))) == real_id(shown)


def test_plain_ids_are_left_alone() -> None:
    """Nearly all ids of all providers are."""
    assert shown_id("toolu_01-A") == "toolu_01-A"
    assert real_id("toolu_01-A") == "toolu_01-A"
    assert real_id("x64_===") == "x64_==="


@given(text=st.none() | st.text(min_size=1, max_size=9), kept=st.lists(blobs, min_size=1, max_size=2))
def test_reasoning_survives_the_way_to_a_client_and_back(text: str | None, kept: list[Blob]) -> None:
    """With all its secrets and whose they are; only Anthropic's own signature goes plain, without its model."""
    item = ReasoningItem(text=() if text is None else (text,), blobs=tuple(kept))
    kind, data = shown_reasoning(item)
    back = read_reasoning("".join(item.text), data, "signature" if kind == "thinking" else "redacted")
    plain = len(kept) == 1 and kept[0].provider == "anthropic" and data == kept[0].data
    expected = (Blob(provider="anthropic", kind=kept[0].kind, data=data),) if plain else item.blobs
    assert back == ReasoningItem(text=item.text, blobs=expected)
    assert kind == "thinking" or not item.text


def test_a_summary_comes_back_as_one() -> None:
    """Other APIs tell summaries from thoughts."""
    item = ReasoningItem(summary=("s",), blobs=(Blob(provider="openai", kind="encrypted_content", data="x"),))
    _, data = shown_reasoning(item)
    assert read_reasoning("s", data, "signature") == item


@pytest.mark.parametrize("data", ["treadle.1.", "treadle.1.!!", "treadle.1.e30", "treadle.1.W10="])
def test_a_seal_that_is_none_is_a_signature(data: str) -> None:
    """It will be refused by whoever is said to have made it, but nothing breaks here."""
    blob = Blob(provider="anthropic", kind="signature", data=data)
    assert read_reasoning("t", data, "signature") == ReasoningItem(text=("t",), blobs=(blob,))
