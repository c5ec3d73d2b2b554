"""Runs read-only git commands, the only module that starts git: outside the sandbox, as the user, in any repository.

The repository may be hostile, so everything its settings could make git run is turned off: file system monitors, hooks,
filters, external diffs, textconv, pagers, transports, and bare repositories inside a folder. A rule test keeps other
modules from starting git.
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
_DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color")
_DIFF_COMMANDS = frozenset({"diff", "log", "show"})
_OWN_SCOPES = ("local", "worktree")
TIMEOUT_S = 30.0


async def run_git(folder: str, *words: str) -> tuple[int, str]:
    """Run a read-only git command and return its exit code and output. The first word is the command."""
    without_filters = await _settings_without_filters(folder)
    command = (words[0], *_DIFF_OPTIONS, *words[1:]) if words[0] in _DIFF_COMMANDS else words
    return await _execute(folder, {**_SETTINGS, **without_filters}, *command)


async def _settings_without_filters(folder: str) -> dict[str, str]:
    """Return settings that turn off the repository's filters, by name: git has no flag to turn off all of them."""
    asked = ("config", "--includes", "--show-scope", "--name-only", "-z", "--get-regexp", r"^filter\.")
    _, listed = await _execute(folder, _SETTINGS, *asked)
    words = listed.split("\0")
    names = [name for scope, name in zip(words[::2], words[1::2], strict=False) if scope in _OWN_SCOPES]
    return {name: "false" if name.casefold().endswith(".required") else "" for name in names}


async def _execute(folder: str, settings: Mapping[str, str], *words: str) -> tuple[int, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *("git", "--no-pager", *words),
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT, **_to_variables(settings)},
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


def _to_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Encode settings as environment variables: with `-c`, a name that contains `=` could not be set."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for index, (name, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
    return variables
