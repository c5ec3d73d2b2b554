"""Names and ids as an upstream takes them: a mapping that is injective, the same for the same request, and reversible.

What fits is never touched. The rest is spelled with the allowed characters, and gets a hash of the original where
it is too long or where two would become one.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from treadle.protocols.translation.upstream_features import FeatureRule

HASH_CHARS = 8


class Names:
    """The words of one request, both ways, and the `count` of those that had to change.

    A word that the request does not have is its own.
    """

    def __init__(self, rule: FeatureRule, words: Iterable[str]) -> None:
        unique = dict.fromkeys(words)
        if all_fit(rule, unique):
            self.count = 0
            self._there: dict[str, str] = {}
            self._back: dict[str, str] = {}
            return
        odd = [word for word in unique if not fits(rule, word)]
        taken = unique.keys() - odd
        self._there = {}
        for word in odd:
            new = next(name for name in _candidates(rule, word) if name not in taken)
            taken.add(new)
            self._there[word] = new
        self._back = {new: word for word, new in self._there.items()}
        self.count = len(odd)

    def there(self, word: str) -> str:
        """Return the word as the upstream knows it."""
        return self._there.get(word, word)

    def back(self, word: str) -> str:
        """Return the word that the upstream means."""
        return self._back.get(word, word)


def all_fit(rule: FeatureRule, words: Collection[str]) -> bool:
    """Return whether the upstream takes all of the words as they are."""
    lines = "\n".join([*words, ""])
    return lines.count("\n") == len(words) and _all(rule).fullmatch(lines) is not None


def fits(rule: FeatureRule, word: str) -> bool:
    """Return whether the upstream takes the word as it is."""
    return _whole(rule).fullmatch(word) is not None


def _candidates(rule: FeatureRule, word: str) -> Iterable[str]:
    """Yield spellings of a word until one is free; all of them fit."""
    plain = _foreign(rule).sub(rule.filler, word)
    if rule.first and not re.match(f"[{rule.first}]", plain):
        plain = rule.filler + plain
    if fits(rule, plain):
        yield plain
    attempt = 0
    while True:
        digest = hashlib.sha256(f"{attempt}:{word}".encode("utf-8", "surrogatepass")).hexdigest()
        if rule.exact:
            yield digest[: rule.chars_max]
        else:
            stem = plain[: rule.chars_max - HASH_CHARS - len(rule.filler)]
            yield f"{stem}{rule.filler}{digest[:HASH_CHARS]}"
        attempt += 1


@lru_cache(maxsize=64)
def _whole(rule: FeatureRule) -> re.Pattern[str]:
    return re.compile(_pattern(rule))


@lru_cache(maxsize=64)
def _all(rule: FeatureRule) -> re.Pattern[str]:
    """Return what matches any number of words that fit, each on a line of its own."""
    return re.compile(f"(?:{_pattern(rule)}\n)*")


def _pattern(rule: FeatureRule) -> str:
    if rule.exact:
        return f"[{rule.chars}]{{{rule.chars_max}}}"
    return f"[{rule.first or rule.chars}][{rule.chars}]{{0,{rule.chars_max - 1}}}"


@lru_cache(maxsize=64)
def _foreign(rule: FeatureRule) -> re.Pattern[str]:
    return re.compile(f"[^{rule.chars}]")
