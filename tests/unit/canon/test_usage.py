from treadle.canon.usage import Usage, add_usage


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
