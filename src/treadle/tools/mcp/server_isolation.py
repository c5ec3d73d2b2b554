"""Isolates stdio servers from Treadle's files, secret and ports. See `sandbox/process_isolation`."""

import asyncio
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence

from treadle.tools.sandbox import landlock
from treadle.tools.sandbox.helper_client import NetRules
from treadle.tools.sandbox.helper_messages import bare_command

LAUNCHER = "treadle.tools.sandbox.process_isolation"


class Hiding:
    """Starts servers without access to `paths` and the `closed` ports, as far as the kernel supports it."""

    def __init__(self, paths: Callable[[], Sequence[str]], closed: Callable[[], frozenset[int]]) -> None:
        self._paths = paths
        self._closed = closed
        self._net_rules = NetRules()

    async def around(
        self, command: Sequence[str], *, cwd: str | None, search_path: str
    ) -> tuple[Sequence[str], tuple[int, ...]]:
        """Return the command that starts the server isolated, and the descriptors it inherits.

        Raises: OSError, if there is no such program; ToolFailed.
        """
        if sys.platform != "linux":
            return command, ()
        _check_program(command[0], cwd, search_path)
        has_ports = await asyncio.to_thread(landlock.version) >= landlock.ABI_PORTS
        net_rules = await self._net_rules.of(self._closed()) if has_ports else -1
        words = json.dumps({"paths": self._existing(), "net_rules": net_rules})
        return [*bare_command(LAUNCHER), words, *command], (net_rules,) if has_ports else ()

    def _existing(self) -> list[str]:
        # Hide the folder itself, not a link to it.
        return [os.path.realpath(path) for path in self._paths() if os.path.exists(path)]

    def close(self) -> None:
        """Close the descriptor of the network rules."""
        self._net_rules.close()


def _check_program(name: str, cwd: str | None, search_path: str) -> None:
    """Check that the program exists: the launcher could report it only on the server's standard error.

    Raises: FileNotFoundError.
    """
    place = os.path.join(cwd or ".", name) if os.path.dirname(name) else name
    if shutil.which(place, path=search_path or None) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
