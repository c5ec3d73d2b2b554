from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming._deltas import accumulate_delta

from treadle.core.json import DEPTH_MAX
from treadle.protocols.decoding.json_values import Growth


def _grown(*values: Any) -> Any:
    growth = Growth()
    for value in values:
        growth.add(value)
    return growth.value()


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ((), None),
        (("a", "b"), "ab"),
        ((1, 2), 2),
        ((True, None), True),
        (({"id": "x", "data": "a"}, {"id": "x", "data": "b", "at": 1}), {"id": "x", "data": "ab", "at": 1}),
        (([{"index": 0, "t": "a"}], [{"index": 1, "t": "b"}, {"index": 0, "t": "c"}]), None),
        (([1], [2]), [1, 2]),
        (([{"a": 1}], [{"a": 2}]), [{"a": 1}, {"a": 2}]),
        (([],), []),
        (({},), {}),
    ],
)
def test_pieces_add_up(values: tuple[Any, ...], grown: Any) -> None:
    """Texts are appended, objects merged, lists merged by index or extended, the rest replaced."""
    expected = grown if values[:1] != ([{"index": 0, "t": "a"}],) else [{"index": 0, "t": "ac"}, {"index": 1, "t": "b"}]
    assert _grown(*values) == expected


def test_nesting_without_end_is_kept_whole() -> None:
    """Beyond the depth bound a value is replaced, not walked into."""
    deep: Any = "x"
    for _ in range(200):
        deep = {"a": deep}
    assert _grown(deep, deep) == deep


_FIELDS = st.dictionaries(st.sampled_from(["data", "text", "more"]), st.text(max_size=3), min_size=1)
_ENTRIES = st.lists(st.builds(lambda fields, index: {**fields, "index": index}, _FIELDS, st.just(0)), min_size=1)


@given(st.lists(st.builds(lambda fields, entries: {**fields, "list": entries}, _FIELDS, _ENTRIES), min_size=1))
def test_it_grows_as_the_sdk_would(deltas: list[dict[str, Any]]) -> None:
    """The official accumulator makes the same of the same deltas."""
    expected: dict[Any, Any] = {}
    for delta in deltas:
        expected = accumulate_delta(expected, {**delta, "list": [dict(entry) for entry in delta["list"]]})
    assert _grown(*deltas) == expected


def _in_objects(leaf: Any, count: int) -> Any:
    return {"v": _in_objects(leaf, count - 1)} if count else leaf


def _in_lists(leaf: Any, count: int) -> Any:
    return [{"index": 0, "v": _in_lists(leaf, count - 1)}] if count else leaf


def test_values_grow_as_deep_as_the_bound_and_no_deeper() -> None:
    """Objects and lists count alike; what is deeper is replaced as a whole."""
    for wrap, count in ((_in_objects, DEPTH_MAX), (_in_lists, DEPTH_MAX // 2)):
        assert _grown(wrap("a", count), wrap("b", count)) == wrap("ab", count)
        for first, second in (({"x": "a"}, {"x": "b"}), (["a"], ["b"])):
            assert _grown(wrap(first, count), wrap(second, count)) == wrap(second, count)
        grown = _grown(wrap(["a"], count - 1), wrap(["b"], count - 1))
        assert grown == wrap(["a", "b"], count - 1)
