"""Loads tools from the user's own code: a module by name, or a file by path; reloads them when the code changes.

Loading runs that code. Its prints go to standard error, since standard output carries the command's own output. The
import path is restored afterwards, and every failure names the file and the cause.
"""

import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from treadle.core.errors import ConfigError, TreadleError
from treadle.tools.function_tools import Tool

IMPORT_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    SystemExit,
    TreadleError,
    TypeError,
    ValueError,
)
"""Exceptions reported as a ConfigError. Anything else is unusual enough to deserve its full traceback."""


def load(place: str) -> list[Tool]:
    """Load from a file if the place is spelled like one (`tools.py`, `./x`), else from a module.

    Raises: ConfigError.
    """
    return load_file(place) if names_file(place) else load_module(place)


def names_file(place: str) -> bool:
    """Return whether a place is spelled like a file rather than a module."""
    return place.endswith(".py") or os.sep in place


def load_module(name: str) -> list[Tool]:
    """Return the tools at the top level of a module; the working directory counts as importable.

    Raises: ConfigError.
    """
    with _importable(os.getcwd()), contextlib.redirect_stdout(sys.stderr):
        try:
            module = importlib.import_module(name)
        except IMPORT_FAILURES as error:
            raise _failure(f'the module "{name}"', error) from error
    return _tools_of(module, f'the module "{name}"')


def load_file(path: str | Path) -> list[Tool]:
    """Return the tools at the top level of a Python file, which may import its neighbours.

    Raises: ConfigError.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        hint = "paths are meant from the working directory, in treadle.toml from where that stands"
        raise ConfigError(f"cannot load tools from {place}: there is no such file", param="tools", hint=hint)
    resolved = place.resolve()
    name = _alias(resolved)
    loader = _Source(name, str(resolved)) if place.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, resolved, loader=loader)
    if spec is None or spec.loader is None:
        message = f"cannot load tools from {place}: it is not a Python file (.py)"
        raise ConfigError(message, param="tools", hint="name a file that ends in .py, or a module")
    module = importlib.util.module_from_spec(spec)
    # Type hints and dataclasses look their module up in sys.modules, during execution and later.
    sys.modules[name] = module
    with _importable(str(resolved.parent)), contextlib.redirect_stdout(sys.stderr):
        try:
            spec.loader.exec_module(module)
        except IMPORT_FAILURES as error:
            del sys.modules[name]
            raise _failure(str(place), error, alias=name) from error
    tools = _tools_of(module, str(place))
    for each in tools:
        each.origin = _without(each.origin, name)
    return tools


class _Source(importlib.machinery.SourceFileLoader):
    """Always compiles the source. Cached bytecode counts as fresh if a file changes within a second and keeps its size.

    The cache is also a different file from the one the user trusted; any writer in the folder could have replaced it.
    """

    def path_stats(self, path: str) -> Any:
        """Raise OSError, which makes the loader skip the bytecode cache."""
        raise OSError(path)


class _Neighbours(importlib.abc.MetaPathFinder):
    """Finds modules as usual, but loads those in one folder from source, never from cached bytecode."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(os.path.realpath(folder), "")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module as PathFinder does, with the loader replaced inside the folder."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        if os.path.realpath(spec.origin).startswith(self._folder):
            spec.loader = _Source(fullname, spec.origin)
        return spec


class Reloader:
    """Watches the files that tools were loaded from, and reloads the tools when one changes.

    `swap` replaces tools by name. If loading fails, the old tools stay.
    """

    def __init__(self, places: Iterable[str], swap: Callable[[Iterable[str], Sequence[Tool]], None]) -> None:
        self._names = {place: _loaded_names(place) for place in places}
        self._swap = swap
        self._seen = {place: _stamps(place) for place in self._names}

    def look(self) -> dict[str, list[str] | ConfigError]:
        """Reload what changed since the last call; return the tools' names, or the error, by place."""
        found: dict[str, list[str] | ConfigError] = {}
        for place, seen in self._seen.items():
            stamps = _stamps(place)
            if stamps == seen:
                continue
            try:
                _forget(place)
                tools = load(place)
                self._swap(self._names[place], tools)
                self._names[place] = [tool.name for tool in tools]
            except ConfigError as error:
                found[place] = error
                self._seen[place] = stamps
                continue
            found[place] = self._names[place]
            # The new code may import other files than before.
            self._seen[place] = _stamps(place)
        return found


def _alias(resolved: Path) -> str:
    """Return the name in sys.modules for a tool file, which no import statement can clash with."""
    return f"treadle_tools_{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:12]}"


def _loaded_names(place: str) -> list[str]:
    """Return the names of the tools that were loaded from a place."""
    name = _alias(Path(place).expanduser().resolve()) if names_file(place) else place
    return [tool.name for tool in _tools_of(sys.modules[name], place)]


def _stamps(place: str) -> dict[str, tuple[int, int]]:
    """Return each file's modification time and size; deleted files are left out."""
    stamps: dict[str, tuple[int, int]] = {}
    for path in _files(place):
        with contextlib.suppress(OSError):
            stat = path.stat()
            stamps[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return stamps


def _files(place: str) -> list[Path]:
    """Return the files to watch: the place itself and its imported neighbours."""
    own = [Path(place).expanduser().resolve()] if names_file(place) else []
    return [*own, *(Path(str(module.__file__)) for module in _neighbours(place))]


def _neighbours(place: str) -> list[ModuleType]:
    """Return the imported modules in the folder of a tool file, or in the package of a tool module."""
    modules = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
    if not names_file(place):
        top = place.partition(".")[0]
        if top == __name__.partition(".")[0]:
            return [module for module in modules if module.__name__ == place]
        return [module for module in modules if module.__name__ == top or module.__name__.startswith(f"{top}.")]
    folder = Path(place).expanduser().resolve().parent
    if any(part in ("site-packages", "dist-packages") for part in folder.parts):
        return []
    return [module for module in modules if folder == Path(str(module.__file__)).parent and _is_top_level(module)]


def _is_top_level(module: ModuleType) -> bool:
    """Return whether a module is top-level and not the main program."""
    return "." not in module.__name__ and module.__name__ != "__main__"


def _forget(place: str) -> None:
    """Drop the modules and their bytecode, so that the next import runs the source again."""
    importlib.invalidate_caches()
    for module in _neighbours(place):
        sys.modules.pop(module.__name__, None)
        cached = getattr(module, "__cached__", None)
        if isinstance(cached, str):
            with contextlib.suppress(OSError):
                os.unlink(cached)


@contextlib.contextmanager
def _importable(folder: str) -> Generator[None, None, None]:
    before, finder = list(sys.path), _Neighbours(folder)
    sys.path.insert(0, folder)
    place = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path.insert(place, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = before


def _tools_of(module: ModuleType, place: str) -> list[Tool]:
    found = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if not found:
        raise ConfigError(
            f"there are no tools in {place}", param="tools", hint="decorate a function with @treadle.tool"
        )
    return list(found.values())


def _failure(place: str, error: BaseException, alias: str = "") -> ConfigError:
    if isinstance(error, SyntaxError):
        cause = f"line {error.lineno}: {error.msg}"
    elif isinstance(error, TreadleError):
        cause = _without(error.message, alias)
    else:
        cause = f"{type(error).__name__}: {error}{_line_of(error)}"
    hint = error.hint if isinstance(error, TreadleError) else _hint_for(error)
    return ConfigError(f"cannot load tools from {place}: {cause}", param="tools", hint=hint)


def _hint_for(error: BaseException) -> str:
    """Return the hint for code that cannot be loaded."""
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name} where Treadle is installed, or name a file: --tools ./FILE.py"
    return "correct the code; `treadle tools --tools FILE` loads it alone and lists what is in it"


def _without(text: str, alias: str) -> str:
    """Remove the internal module name of a tool file; the message already names the file."""
    return text.replace(f"{alias}.", "") if alias else text


def _line_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename.startswith("<"):
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
