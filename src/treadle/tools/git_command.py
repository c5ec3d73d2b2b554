"""The only place where Treadle itself starts git: outside the sandbox, as the person, on a repository of anybody's.

What the repository's settings make git run is turned off: monitors, hooks, filters, external diffs, textconv, pagers,
transports, and settings of folders that only look like a repository. A rule test keeps other modules from starting git.
"""

import asyncio
import os
from collections.abc import Mapping

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.editor": "true",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.alternateRefsCommand": "",
    "credential.helper": "",
    "diff.external": "",
    "diff.ignoreSubmodules": "all",
    "interactive.diffFilter": "",
    "log.showSignature": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
    "status.submoduleSummary": "false",
}
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
}
_DIFF_WORDS = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color")
_DIFFING = frozenset({"diff", "log", "show"})
_OWN_SCOPES = ("local", "worktree")
TIMEOUT_S = 30.0


async def run_git(folder: str, *words: str) -> tuple[int, str]:
    """Run a git command that only reads, and return its exit code and what it wrote. The first word is the command."""
    filters = await _filters(folder)
    command = (words[0], *_DIFF_WORDS, *words[1:]) if words[0] in _DIFFING else words
    return await _start(folder, {**_SETTINGS, **filters}, *command)


async def _filters(folder: str) -> dict[str, str]:
    """Return the settings that turn off the filters which the repository names; no flag of git's does that."""
    asked = ("config", "--includes", "--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
    _, listed = await _start(folder, _SETTINGS, *asked)
    words = listed.split("\0")
    names = [name for scope, name in zip(words[::2], words[1::2], strict=False) if scope in _OWN_SCOPES]
    return {name: "false" if name.casefold().endswith(".required") else "" for name in names}


async def _start(folder: str, settings: Mapping[str, str], *words: str) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "--no-pager", *words),
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT, **_as_variables(settings)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        return 127, f"git: {error.strerror}"
    try:
        out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    except TimeoutError:
        return 124, f"git did not finish within {TIMEOUT_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode("utf-8", "replace")


def _as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Write settings as variables: on the command line a name that holds `=` could not be turned off."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (name, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return variables
