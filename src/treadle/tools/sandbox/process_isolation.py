"""Starts a program that is not a command: all it is kept from are Treadle's own files, processes and ports.

An MCP server may need the person's home, the network and containers, so it is not confined as a command is. What
hides Treadle from it: a mount namespace in which the journal's files read as empty, Landlock rules for TCP ports, and
a filter for connections that Landlock does not see. In a Landlock domain and a user namespace it cannot look into the
processes outside either. Standard library only; `main` becomes the program.
"""

import contextlib
import json
import os
import sys
from collections.abc import Collection

from treadle.tools.sandbox import landlock, namespaces, seccomp
from treadle.tools.sandbox import syscalls as kernel


def main() -> None:
    """Hide what the first argument names and become the program of the rest, or say what cannot be hidden."""
    if sys.argv[1:] == ["--gaps"]:
        json.dump(gaps(landlock.version()), sys.stdout)
        return
    words = json.loads(sys.argv[1])
    hide(words["paths"], words["net_rules"])
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.stderr.write(f"{sys.argv[2]}: {error.strerror}\n")
        sys.exit(127)


def hide(paths: Collection[str], net_rules: int) -> None:
    """Hide paths, processes and ports, as far as this machine can: `gaps` says beforehand how far that is."""
    with contextlib.suppress(OSError):
        namespaces.hide(paths)
    with contextlib.suppress(OSError):
        kernel.drop_privileges()
        if net_rules >= 0:
            landlock.enforce(net_rules)
    if seccomp.is_known():
        with contextlib.suppress(OSError):
            seccomp.restrict_connections()


def gaps(abi: int) -> list[str]:
    """Say what cannot be hidden from such a program here; tried in a child."""
    found: list[str] = []
    if not _can_hide():
        found.append("the journal and its secret can be read: there are no user namespaces")
    if abi < landlock.ABI_PORTS or not seccomp.is_known():
        found.append("Treadle's own ports can be reached: Landlock 4 (Linux 6.7) and seccomp are needed")
    return found


def _can_hide() -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            namespaces.hide(())
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


if __name__ == "__main__":
    main()
