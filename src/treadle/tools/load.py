"""Finding tools in the user's own code: a module by name, or a file by path.

Loading runs that code; what it prints meanwhile goes to standard error, since standard output is the answer's. The
import path is put back as it was, and whatever goes wrong names the file and the cause.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType

from treadle.canon.errors import ConfigError, TreadleError
from treadle.tools.function import Tool

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
"""What code raises while it is imported. Anything else is so odd that its traceback is worth more than our words."""


def load(place: str) -> list[Tool]:
    """Load from a file when the place looks like one (`tools.py`, `./x`), else from a module.

    Raises: ConfigError.
    """
    return load_file(place) if names_file(place) else load_module(place)


def names_file(place: str) -> bool:
    """Tell a file from a module by its spelling."""
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
        raise ConfigError(f"cannot load tools from {place}: there is no such file", param="tools")
    resolved = place.resolve()
    name = f"treadle_tools_{hashlib.sha256(os.fsencode(resolved)).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ConfigError(f"cannot load tools from {place}: it is not a Python file (.py)", param="tools")
    module = importlib.util.module_from_spec(spec)
    # Type hints and dataclasses look their module up by name, so it must be there while and after it runs.
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


@contextlib.contextmanager
def _importable(folder: str) -> Generator[None, None, None]:
    before = list(sys.path)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
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
    hint = error.hint if isinstance(error, TreadleError) else None
    return ConfigError(f"cannot load tools from {place}: {cause}", param="tools", hint=hint)


def _without(text: str, alias: str) -> str:
    """Leave out the name that a file's module has only here; the file itself is named beside it."""
    return text.replace(f"{alias}.", "") if alias else text


def _line_of(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename.startswith("<"):
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
