"""Names and ids that an upstream cannot spell: mapped without a collision, and back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.name_mapping import Names, fits
from treadle.protocols.translation.upstream_features import FeatureRule

NINE = FeatureRule(chars="a-zA-Z0-9", filler="", chars_max=9, exact=True)
GEMINI = PROTOCOLS["gemini"].features.names
OPENAI = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RULES = st.sampled_from(
    [FeatureRule(), GEMINI, NINE, FeatureRule(chars_max=12), FeatureRule(chars="!-~", chars_max=40)]
)
WORDS = st.lists(
    st.text(st.characters(exclude_categories=()), max_size=90) | st.sampled_from(["a.b", "a_b", "a b", "1a"])
)


@given(RULES, WORDS)
def test_mapping_is_injective_fits_and_comes_back(rule, words):
    """Distinct words stay distinct, every one fits, and each is found again."""
    names = Names(rule, words)
    mapped = {word: names.there(word) for word in words}
    assert len(set(mapped.values())) == len(set(words))
    assert all(fits(rule, new) for new in mapped.values())
    assert all(names.back(new) == word for word, new in mapped.items())


@given(RULES, WORDS)
def test_what_fits_is_untouched(rule, words):
    """A word that the upstream takes is sent as it is, whatever the others are."""
    names = Names(rule, words)
    assert all(names.there(word) == word for word in words if fits(rule, word))


@given(RULES, WORDS)
def test_the_same_words_give_the_same_mapping(rule, words):
    """A request that is sent again is the same request."""
    first, second = Names(rule, words), Names(rule, words)
    assert [first.there(word) for word in words] == [second.there(word) for word in words]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_dotted_names_work_everywhere(protocol):
    """facts.propose is spelled readably for every protocol, and found again."""
    names = Names(PROTOCOLS[protocol].features.names, ["facts.propose"])
    assert names.there("facts.propose") == "facts_propose"
    assert names.back("facts_propose") == "facts.propose"


def test_two_words_that_would_become_one_stay_two():
    """The word that fits keeps its spelling, the others get a hash."""
    names = Names(FeatureRule(), ["a.b", "a_b", "a b"])
    assert names.there("a_b") == "a_b"
    spelled = [names.there("a.b"), names.there("a b")]
    assert all(re.fullmatch(r"a_b_[0-9a-f]{8}", name) for name in spelled)
    assert len(set(spelled)) == 2


def test_a_long_name_is_cut_with_a_hash():
    """Names that differ only past the limit stay apart."""
    long = "n" * 200
    names = Names(FeatureRule(), [long, long + "x"])
    assert all(OPENAI.fullmatch(names.there(word)) and len(names.there(word)) == 64 for word in (long, long + "x"))
    assert names.there(long) != names.there(long + "x")


def test_a_first_character_of_its_own_kind_is_put_before():
    """Gemini takes no digit first."""
    assert Names(GEMINI, ["3d.view"]).there("3d.view") == "_3d_view"


def test_ids_of_exact_length_are_hashes():
    """Mistral takes ids of nine letters and digits only."""
    names = Names(NINE, ["call_PTLP8xhu3uwZk4l3nlnrrJha", "abcdefgh1"])
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", names.there("call_PTLP8xhu3uwZk4l3nlnrrJha"))
    assert names.there("abcdefgh1") == "abcdefgh1"


def test_a_word_that_nobody_named_is_its_own():
    """What the model invents is passed on for others to judge."""
    names = Names(FeatureRule(), ["a.b"])
    assert names.back("other.name") == "other.name"


def test_a_spelling_that_another_word_has_already_is_not_taken():
    """Words that look like the hash of another, or are it, still leave a name for everybody."""
    first = Names(FeatureRule(), ["a.b", "a_b"]).there("a.b")
    names = Names(FeatureRule(), ["a.b", "a_b", first])
    assert names.there(first) == first
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", names.there("a.b"))
    assert len({names.there(word) for word in ("a.b", "a_b", first)}) == 3
    assert names.back(names.there("a.b")) == "a.b"
