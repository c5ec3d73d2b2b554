"""Token usage, summed over the rounds of a run, and its cost. Unknown usage is None, never zero."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one model call, or of a run."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Return input plus output."""
        return self.input_tokens + self.output_tokens


def add_usage(left: Usage | None, right: Usage | None) -> Usage | None:
    """Sum two usages; an unknown one adds nothing."""
    if left is None or right is None:
        return left or right
    return Usage(
        input_tokens=left.input_tokens + right.input_tokens,
        output_tokens=left.output_tokens + right.output_tokens,
        cached_tokens=left.cached_tokens + right.cached_tokens,
        cache_write_tokens=left.cache_write_tokens + right.cache_write_tokens,
        reasoning_tokens=left.reasoning_tokens + right.reasoning_tokens,
        estimated=left.estimated or right.estimated,
    )


TOKENS_PRICED = 1_000_000
"""The number of tokens that prices are for."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a million tokens of a model in US dollars. Cached input without its own price costs as input."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None


def cost_of(usage: Usage, price: Price) -> float:
    """Return the cost of a usage in US dollars; cached and cache-write tokens are part of the input tokens."""
    plain = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    total = plain * price.input + usage.output_tokens * price.output
    return (total + usage.cached_tokens * cached + usage.cache_write_tokens * written) / TOKENS_PRICED
