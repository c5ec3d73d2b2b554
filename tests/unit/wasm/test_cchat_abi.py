"""The host-call contract: numbers, names and signatures that guests are compiled against must never move."""

import errno
import sys

import pytest

from treadle.wasm.cchat_abi import (
    CALLS,
    MODULE,
    MODULE_COMPATIBLE,
    ROLES,
    RULES,
    TOOL,
    CchatFlag,
    Command,
    Errno,
    WasiErrno,
    calls_of,
    outcome_of,
    wants_space,
)

SEVEN = {
    "cchat_create": 0,
    "cchat_write_msg": 5,
    "cchat_write_fn": 4,
    "cchat_ctl": 4,
    "cchat_send": 2,
    "cchat_recv": 3,
    "cchat_close": 1,
}


@pytest.mark.parametrize(("name", "parameters"), SEVEN.items())
def test_the_seven_calls_keep_their_signature(name: str, parameters: int) -> None:
    """Every parameter and the result of the seven calls is an i32, in the number the guests pass."""
    assert CALLS[name].signature == (("i32",) * parameters, ("i32",))


def test_a_tool_takes_four_integers_and_returns_one() -> None:
    """The signature that a slot of the table must have."""
    assert TOOL.signature == (("i32", "i32", "i32", "i32"), ("i32",))
    assert TOOL.parameters == ("args_ptr", "args_len", "out_ptr", "out_len_ptr")


def test_the_clocks_and_the_random_number_are_wide() -> None:
    """Three calls return an i64 and take nothing."""
    wide = {call.name: call.signature for call in CALLS.values() if call.result == "i64"}
    assert wide == dict.fromkeys(("time_now_ms", "wall_time_s", "random_i64"), ((), ("i64",)))


def test_the_old_module_offers_only_what_it_always_did() -> None:
    """The additions exist under `treadle` alone; any other module name offers nothing."""
    ours = {call.name for call in calls_of(MODULE)}
    theirs = {call.name for call in calls_of(MODULE_COMPATIBLE)}
    assert ours - theirs == {"cchat_abi", "cchat_write_result", "cchat_error"}
    assert theirs >= set(SEVEN)
    assert theirs < ours
    assert calls_of("env") == ()


def test_the_strict_rules_hold_for_our_module_only() -> None:
    """Guests built for the old module keep the behaviour they were built for."""
    strict, compatible = RULES[MODULE], RULES[MODULE_COMPATIBLE]
    assert (strict.refuses_bad_tools, strict.refuses_second_close, strict.appends_without_auto) == (True, True, True)
    assert compatible == type(compatible)(
        refuses_bad_tools=False, refuses_second_close=False, appends_without_auto=False
    )


def test_flags_and_commands_have_their_numbers() -> None:
    """Bit 0 metrics, bit 1 automatic tool calls; 1 sets a parameter, 2 reads the metrics."""
    assert (CchatFlag.METRICS, CchatFlag.AUTO_TOOL_CALL) == (1, 2)
    assert (Command.SET_PARAM, Command.GET_METRICS) == (1, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="compares with the numbers of the running kernel")
@pytest.mark.parametrize("member", list(Errno))
def test_error_numbers_are_those_of_linux(member: Errno) -> None:
    """The guest's header and the host mean the same number by the same name."""
    assert member.value == getattr(errno, member.name)


def test_the_numbers_of_wasi_libc_differ_and_one_collides() -> None:
    """WASI's EINVAL is Linux's ENOSPC: the trap that `wants_space` exists for."""
    assert WasiErrno.EINVAL.value == Errno.ENOSPC.value
    assert WasiErrno.ENOSPC.value == 51
    assert all(member.value != Errno[member.name].value for member in WasiErrno)


@pytest.mark.parametrize(
    ("rc", "wanted", "capacity", "answer"),
    [
        (-28, 200, 100, True),
        (-51, 200, 100, True),
        (-28, 100, 100, False),
        (-28, 0, 100, False),
        (-51, 50, 100, False),
        (-22, 200, 100, False),
        (0, 200, 100, False),
        (28, 200, 100, False),
    ],
)
def test_a_larger_buffer_is_wanted_only_when_the_length_grew(rc: int, wanted: int, capacity: int, answer: bool) -> None:
    """-28 or -51 count as ENOSPC only with a length above the capacity."""
    assert wants_space(rc, wanted, capacity) is answer


@pytest.mark.parametrize(
    ("rc", "wanted", "errno_out"),
    [
        (0, 100, None),
        (0, 101, Errno.EFAULT),
        (-28, 101, Errno.ENOSPC),
        (-51, 101, Errno.ENOSPC),
        (-28, 10, Errno.ENOSPC),
        (-51, 10, Errno.EIO),
        (-22, 10, Errno.EINVAL),
        (-5, 10, Errno.EIO),
        (1, 10, Errno.EIO),
        (-9999, 10, Errno.EIO),
    ],
)
def test_a_return_code_is_read_with_the_length_it_left(rc: int, wanted: int, errno_out: Errno | None) -> None:
    """Success with a length past the buffer is a fault; a positive or unknown code is an input/output error."""
    assert outcome_of(rc, wanted, 100) is errno_out


def test_a_guest_cannot_speak_as_a_tool() -> None:
    """Results come from the host alone."""
    assert frozenset({"system", "developer", "user", "assistant"}) == ROLES
