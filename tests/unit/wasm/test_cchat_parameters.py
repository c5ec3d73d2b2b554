"""What a guest may set: Treadle's own keys within bounds, the host's not at all, the rest for the upstream."""

import json
from typing import Any

import msgspec
import pytest

from treadle.wasm.cchat_abi import Errno
from treadle.wasm.cchat_parameters import KNOWN, PARAMETER_BYTES_MAX, CchatParameter, read_parameter
from treadle.wasm.cchat_tool_registration import RegistrationRefusal


def setting(key: Any, value: Any) -> bytes:
    """Return what a guest passes to SET_PARAM."""
    return json.dumps({"key": key, "value": value}).encode()


def plain(parameter: CchatParameter | RegistrationRefusal) -> tuple[str, bytes, bool]:
    """Return the parameter with its value as bytes, so that it can be compared."""
    assert isinstance(parameter, CchatParameter), parameter
    return parameter.key, bytes(parameter.value), parameter.upstream


@pytest.mark.parametrize(
    ("key", "default", "high"),
    [
        ("max_iterations", 8, 32),
        ("max_total_tool_calls", 32, 256),
        ("max_tool_output_bytes", 65_536, 1_048_576),
    ],
)
def test_a_limit_has_its_default_and_its_ceiling(key: str, default: int, high: int) -> None:
    """Up to the ceiling it is taken, past it refused: a guest never runs under a number it did not set."""
    assert KNOWN[key].default == default
    assert plain(read_parameter(setting(key, high))) == (key, str(high).encode(), False)
    for value in (0, -1, high + 1, True, "8", 1.5, None):
        refusal = read_parameter(setting(key, value))
        assert refusal == RegistrationRefusal(
            errno=Errno.EINVAL, message=f"`{key}` must be an integer from 1 to {high}"
        )


def test_the_other_name_of_a_limit_is_understood() -> None:
    """`max_tool_calls` is `max_total_tool_calls`."""
    assert plain(read_parameter(setting("max_tool_calls", 5))) == ("max_total_tool_calls", b"5", False)


@pytest.mark.parametrize(
    ("key", "good", "bad", "wanted"),
    [
        ("model", "gpt", "", "a string that is not empty"),
        ("mcp.enabled", True, 1, "true or false"),
        ("mcp.server_ids", ["a"], ["a", 1], "an array of strings"),
        ("tool_arena_ptr", 2**32 - 1, 2**32, "an integer from 0 to 4294967295"),
    ],
)
def test_a_key_takes_a_value_of_its_kind(key: str, good: Any, bad: Any, wanted: str) -> None:
    """The refusal says what the value must be."""
    assert plain(read_parameter(setting(key, good))) == (key, msgspec.json.encode(good), False)
    assert read_parameter(setting(key, bad)) == RegistrationRefusal(
        errno=Errno.EINVAL, message=f"`{key}` must be {wanted}"
    )


@pytest.mark.parametrize(("key", "value"), [("temperature", 0.5), ("seed", None), ("response_format", {"type": "x"})])
def test_a_key_that_is_not_ours_goes_upstream(key: str, value: Any) -> None:
    """As it is, whatever its value."""
    assert plain(read_parameter(setting(key, value))) == (key, msgspec.json.encode(value), True)


def test_the_keys_of_the_host_are_denied() -> None:
    """-EACCES for what the host sets for a task."""
    assert read_parameter(setting("mcp.task_id", "x")) == RegistrationRefusal(
        errno=Errno.EACCES, message="`mcp.task_id` is set by the host"
    )


@pytest.mark.parametrize("key", ["messages", "tools"])
def test_messages_and_tools_cannot_be_smuggled_in(key: str) -> None:
    """They have calls of their own, which check them."""
    assert read_parameter(setting(key, [])) == RegistrationRefusal(
        errno=Errno.EINVAL, message=f"`{key}` has a call of its own"
    )


@pytest.mark.parametrize(
    ("data", "errno"),
    [
        (b"{", Errno.EIO),
        (b'{"key":"a","value":NaN}', Errno.EIO),
        (b"\xff", Errno.EILSEQ),
        (b" " * (PARAMETER_BYTES_MAX + 1), Errno.E2BIG),
        (b'{"key":"a"}', Errno.EINVAL),
        (b'{"key":1,"value":1}', Errno.EINVAL),
        (b'{"key":"a","value":1,"more":1}', Errno.EINVAL),
        (b"[]", Errno.EINVAL),
        (b'{"key":"","value":1}', Errno.EINVAL),
        (setting("k" * 129, 1), Errno.EINVAL),
    ],
)
def test_what_is_not_a_setting_is_refused_by_number(data: bytes, errno: Errno) -> None:
    """Bad JSON is -EIO as it always was; the newer checks have numbers of their own."""
    refusal = read_parameter(data)
    assert isinstance(refusal, RegistrationRefusal)
    assert refusal.errno is errno
