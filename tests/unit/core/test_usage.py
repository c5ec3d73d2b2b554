from treadle.core.usage import Price, Usage, add_usage, cost_of


def test_usage_adds_over_rounds():
    """Every field sums."""
    left = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, cache_write_tokens=4, reasoning_tokens=5)
    right = Usage(input_tokens=10, output_tokens=20, cached_tokens=30, cache_write_tokens=40, reasoning_tokens=50)
    assert add_usage(left, right) == Usage(
        input_tokens=11, output_tokens=22, cached_tokens=33, cache_write_tokens=44, reasoning_tokens=55
    )


def test_unknown_stays_unknown():
    """Nothing known is None, not zero; a known part is kept."""
    assert add_usage(None, None) is None
    assert add_usage(Usage(input_tokens=1), None) == Usage(input_tokens=1)
    assert add_usage(None, Usage(output_tokens=1)) == Usage(output_tokens=1)


def test_an_estimate_makes_the_sum_an_estimate():
    """A labelled estimate stays labelled."""
    assert add_usage(Usage(input_tokens=1, estimated=True), Usage(input_tokens=1)) == Usage(
        input_tokens=2, estimated=True
    )


def test_a_usage_costs_what_its_tokens_cost():
    """Cached input and what was written to a cache are parts of the input, with prices of their own where given."""
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000, cached_tokens=600_000, cache_write_tokens=100_000)
    assert cost_of(usage, Price(input=2.0, output=10.0)) == 7.0
    assert cost_of(usage, Price(input=2.0, output=10.0, cached=0.5, cache_write=4.0)) == 6.3
    assert cost_of(Usage(), Price(input=2.0, output=10.0)) == 0.0


def test_more_cached_tokens_than_input_cost_no_less_than_nothing():
    """Some providers count so."""
    assert cost_of(Usage(input_tokens=1, cached_tokens=5), Price(input=1e6, output=0.0, cached=0.0)) == 0.0
