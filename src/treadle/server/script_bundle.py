"""Puts modules into one, in their order: a browser fetches one file, and it packs better than many.

It relies on how the pages' scripts are written: imports stand on lines of their own and name what they take, a name
at the top of a module is not used at the top of another one, and what is imported is not renamed. Where that does not
hold it refuses, which a test would see. Pure.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence

_IMPORT = re.compile(r'^import (?:\{ ([^}]+) \}|(\w+)) from "([^"]+)";\n', re.MULTILINE)
_ON_NEED = re.compile(r'(?<=import\()"([^"]+)"')
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_EXPORTS = re.compile(r"^export \{[^}]*\};\n", re.MULTILINE)
_TOP = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)

Imports = dict[str, dict[str, None]]
"""What is taken from each other file, in the order in which it is first named."""


class NotJoinable(ValueError):
    """Modules that cannot be one: a name stands for two things, or an import is written in another way."""


def bundle(modules: Mapping[str, str], base: str, homes: Mapping[str, str], *, exports: bool = False) -> str:
    """Return modules as one. Paths are below `base`; `homes` names the file that holds a module of another join.

    Their exports stay exported only if `exports` is set: all users of a page's own modules are in the same file.

    Raises: NotJoinable.
    """
    _check(list(modules.values()), list(modules))
    taken: Imports = {}
    bodies: list[str] = []
    for name, source in modules.items():
        for named, whole, target in _IMPORT.findall(source):
            path = _path(name, target)
            if path in modules:
                if whole or " as " in named:
                    raise NotJoinable(f"{name} gives {path} or what is in it another name")
                continue
            names = taken.setdefault(f"{base}{homes.get(path, path)}", {})
            names |= dict.fromkeys([f"default as {whole}"] if whole else re.split(r",\s*", named))
        body = _ON_NEED.sub(lambda found, name=name: f'"{base}{_path(name, found[1])}"', _IMPORT.sub("", source))
        bodies.append(body if exports else _EXPORT.sub("", _EXPORTS.sub("", body)))
    if re.search(r"^import\b|\bimport\.meta\b", "\n".join(bodies), re.MULTILINE):
        raise NotJoinable("an import is not on a line of its own, or does not name what it takes")
    _check([*modules.values(), *_declared(taken)], [*modules, "what is imported"])
    return "".join([*(_written(path, names) for path, names in taken.items()), *bodies])


def _path(name: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _written(path: str, names: Mapping[str, None]) -> str:
    return f'import {{ {", ".join(names)} }} from "{path}";\n'


def _declared(taken: Imports) -> list[str]:
    """Return what is imported as if it stood at the top of a module, each name once."""
    names = {name.rpartition(" ")[2] for found in taken.values() for name in found}
    return ["".join(f"const {name}\n" for name in sorted(names))]


def _check(sources: Sequence[str], names: Sequence[str]) -> None:
    """Raises: NotJoinable when two modules have the same name at their top."""
    seen: dict[str, str] = {}
    for module, source in zip(names, sources, strict=True):
        for top in _TOP.findall(source):
            if top in seen:
                raise NotJoinable(f"{top} is in {seen[top]} and in {module}")
            seen[top] = module
