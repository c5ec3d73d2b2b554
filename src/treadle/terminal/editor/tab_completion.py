"""Tab completion: commands after `/`, files after `@`, earlier prompts after `#`, and arguments of commands."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from treadle.terminal.rendering.sanitize import one_line

FILES_MAX = 50
PROMPTS_MAX = 20
WALKED_MAX = 20_000
_SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache"})


class Completions(Completer):
    """Completes the line by its first character."""

    def __init__(
        self,
        commands: Mapping[str, str],
        words: Mapping[str, Sequence[str]],
        root: str,
        history: Callable[[], Sequence[str]],
    ) -> None:
        self._commands = commands
        self._words = words
        self._root = root
        self._history = history

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what fits."""
        typed = document.text_before_cursor
        last = typed.rsplit(None, 1)[-1] if typed and not typed[-1].isspace() else ""
        if last.startswith("@"):
            yield from self._files(last[1:])
        elif typed.startswith("#"):
            yield from self._prompts(typed)
        elif typed.startswith("/") and "\n" not in typed:
            yield from self._command(typed)

    def _command(self, typed: str) -> Iterable[Completion]:
        name, space, rest = typed.partition(" ")
        if not space:
            for each, summary in self._commands.items():
                if each.startswith(name):
                    yield Completion(each, start_position=-len(name), display_meta=summary)
        else:
            for word in self._words.get(name, ()):
                if word.lower().startswith(rest.lower()):
                    yield Completion(word, start_position=-len(rest), display=one_line(word))

    def _files(self, typed: str) -> Iterable[Completion]:
        for path in find_files(self._root, typed):
            yield Completion(f"@{path}", start_position=-len(typed) - 1, display=one_line(path))

    def _prompts(self, typed: str) -> Iterable[Completion]:
        wanted = typed[1:].strip().casefold()
        seen: set[str] = set()
        for text in self._history():
            if wanted in text.casefold() and text not in seen and not text.startswith("#"):
                seen.add(text)
                yield Completion(text, start_position=-len(typed), display=one_line(text)[:70])
            if len(seen) >= PROMPTS_MAX:
                return


def find_files(root: str, typed: str) -> list[str]:
    """Return files and folders below the root whose path starts with the typed text, else whose name contains it."""
    folder, _, leaf = typed.rpartition("/")
    within = os.path.normpath(os.path.join(root, folder))
    if os.path.commonpath([root, within]) != root:
        return []
    near = sorted(_entries(within, folder, leaf))
    return near[:FILES_MAX] if near or not leaf else sorted(_deep(root, typed), key=len)[:FILES_MAX]


def _entries(path: str, shown: str, leaf: str) -> Iterable[str]:
    try:
        with os.scandir(path) as found:
            for each in found:
                if each.name.startswith(leaf) and each.name not in _SKIPPED and (leaf or not each.name.startswith(".")):
                    name = f"{shown}/{each.name}" if shown else each.name
                    yield f"{name}/" if each.is_dir(follow_symlinks=False) else name
    except OSError:
        return


def _deep(root: str, typed: str) -> Iterable[str]:
    """Search the folders below, up to a bound."""
    wanted, count = typed.casefold(), 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        count += len(names)
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if wanted in path.casefold():
                yield path
        if count > WALKED_MAX:
            return
