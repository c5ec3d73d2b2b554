"""Which level of confinement this machine has: found once by a real probe, never assumed."""

import functools
import subprocess
import sys
from typing import Literal

import msgspec

from treadle.core.errors import ConfigError
from treadle.tools.sandbox import landlock
from treadle.tools.sandbox.helper_messages import bare_command

PROBE_WAIT_S = 30.0
Choice = Literal["auto", "L0", "L1", "L2", "L3"]

GIVES = {
    0: "nothing is confined: limits on resources and a short environment only",
    1: "files by Landlock, system calls by seccomp, no network; with the gaps of an old kernel",
    2: "files by Landlock, system calls by seccomp, no network",
    3: "as L2, and namespaces of its own: processes, mounts, network; secrets in the folder are hidden",
}
KNOWN_GAPS = {
    0: ("everything the user may do",),
    1: ("modes and times of files outside can be changed", "command lines of other processes can be read"),
    2: ("modes and times of files outside can be changed", "command lines of other processes can be read"),
    3: (),
}
ABI_OF_L1 = 3


class FoundLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The best level, the version of Landlock, and for each better level why it is not to be had."""

    level: int
    abi: int = 0
    missing: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Return the level as people write it."""
        return f"L{self.level}"


@functools.cache
def find_level() -> FoundLevel:
    """Probe this machine; once in a process."""
    if sys.platform == "win32":
        return FoundLevel(level=0, missing={"L1": "there is no such thing on Windows"})
    try:
        done = subprocess.run(
            bare_command("treadle.tools.sandbox.level_probe"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_WAIT_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=FoundLevel)
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        return FoundLevel(level=0, missing={"L1": f"the probe failed: {error}"})


def network_gap(level: int, abi: int) -> str | None:
    """Return why commands with a network cannot be kept from Treadle's own ports, or nothing when they can."""
    if level == 0:
        return "at L0 nothing is kept from anything"
    if abi < landlock.ABI_PORTS:
        return f"Landlock {abi} cannot keep them from Treadle's own ports, {landlock.ABI_PORTS} can (Linux 6.7)"
    return None


@functools.cache
def hiding_gaps() -> tuple[str, ...]:
    """Return what of Treadle cannot be hidden from an MCP server on this machine; tried once in a process."""
    if sys.platform != "linux":
        return ("an MCP server can do everything the user may do: there is nothing here to hide Treadle with",)
    try:
        command = [*bare_command("treadle.tools.sandbox.process_isolation"), "--gaps"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_WAIT_S, check=False)
        return msgspec.json.decode(done.stdout, type=tuple[str, ...])
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        return (f"the probe failed: {error}",)


def choose_level(choice: Choice, found: FoundLevel) -> FoundLevel:
    """Take the level that is asked for, or the best there is.

    Raises: ConfigError, when the machine does not have it: a level is never lowered silently.
    """
    if choice == "auto":
        return found
    wanted = int(choice[1])
    if wanted > found.level:
        reason = found.missing.get(choice, "it did not hold when it was tried")
        raise ConfigError(
            f"the sandbox level {choice} is not to be had here: {reason}",
            param="tools.local.sandbox",
            hint=f'the best level of this machine is {found.name}; "auto" takes it',
        )
    abi = min(found.abi, ABI_OF_L1) if wanted == 1 else found.abi
    return msgspec.structs.replace(found, level=wanted, abi=abi if wanted else 0)


def can_read_only(found: FoundLevel) -> bool:
    """Return whether a command can be kept from changing anything: the probe of every level from L1 on has tried it."""
    return found.level > 0


def describe_read_only(found: FoundLevel) -> str:
    """Say in one line what keeps a command that is not asked about from writing, for `treadle doctor`."""
    if not can_read_only(found):
        return "nothing here keeps a command from writing: a person is asked about every one"
    how = "a mount namespace, Landlock and seccomp" if found.level > 2 else "Landlock and seccomp"
    return f"enforced by {how}: a command that is not asked about writes nothing and has no network"


def describe(found: FoundLevel) -> str:
    """Say in one line what a level gives, for `treadle doctor`."""
    landlock = f" (Landlock {found.abi})" if found.level else ""
    return f"{found.name}{landlock}: {GIVES[found.level]}"


def shortfalls(found: FoundLevel) -> list[str]:
    """Name the better levels that are not to be had and why, and what commands can do although they should not."""
    better = [f"{level} is not to be had here: {reason}" for level, reason in found.missing.items()]
    gaps = [*KNOWN_GAPS[found.level], *(landlock.gaps(found.abi) if found.level else ())]
    return better + [f"at {found.name}: {gap}" for gap in gaps]
