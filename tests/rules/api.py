"""The public library as text: every public name with its signature. `python -m rules.api` writes it anew.

Public is what `treadle` exports and what the documents import from other modules. Whoever changes this text names the
change in CHANGELOG.md.
"""

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import treadle
from rules.tree import ROOT
from treadle.config.settings import Section

FROZEN = Path(__file__).with_name("api.txt")
_FENCE = re.compile(r"^```python[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def documented() -> dict[str, set[str]]:
    """Return the names that programs in the documents and examples import from Treadle's modules."""
    texts = [
        match["text"]
        for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for match in _FENCE.finditer(path.read_text(encoding="utf-8"))
    ]
    found: dict[str, set[str]] = {"treadle": set(treadle.__all__)}
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "treadle":
                found.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    return found


def write_api() -> str:
    """Write every public name, sorted, one line for each and for each of its members."""
    lines = [
        line
        for module, names in sorted(documented().items())
        for name in sorted(names)
        for line in _lines(f"{module}.{name}", getattr(importlib.import_module(module), name))
    ]
    return "\n".join([*lines, ""])


def _lines(path: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {path}{_bases(value)}"
        yield from (f"  {member}" for member in _members(value))
    elif callable(value):
        yield f"def {path}{signature_of(value)}"
    else:
        yield f"{path}: {type_text(value)}"


def _bases(kind: type) -> str:
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    return f"({', '.join(bases)})" if bases else ""


def _members(kind: type) -> Iterator[str]:
    """Yield fields first, then methods and properties that the class itself has; private names are left out."""
    if issubclass(kind, Section):
        yield "fields: as docs/configuration.md has them"
    elif issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield f"{field.name}: {type_text(field.type)}{'' if field.required else ' = …'}"
    elif issubclass(kind, enum.Enum):
        yield from (f"{each.name} = {each.value!r}" for each in kind)
    elif kind.__init__ is not object.__init__:
        yield f"__init__{signature_of(kind.__init__)}"
    for name, member in sorted(vars(kind).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"{name}: {type_text(member.fget.__annotations__.get('return')) if member.fget else ''} (property)"
        elif inspect.isfunction(member):
            yield f"{'async ' if _is_async(member) else ''}def {name}{signature_of(member)}"


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def signature_of(function: Any) -> str:
    """Write how a function is called."""
    signature = inspect.signature(function)
    parts: list[str] = []
    for name, parameter in signature.parameters.items():
        kind = "" if parameter.annotation is parameter.empty else f": {type_text(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else " = …"
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not any(p.startswith("*") for p in parts):
            parts.append("*")
        parts.append(f"{star}{name}{kind}{default}")
    result = "" if signature.return_annotation is signature.empty else f" -> {type_text(signature.return_annotation)}"
    return f"({', '.join(parts)}){result}"


def type_text(annotation: object) -> str:
    """Write a type without the modules in it, alike on every Python."""
    if annotation is None or annotation is type(None):
        return "None"
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\*?<class '([\w.]+)'>", r"\1", _ADDRESS.sub("", text))
    bare = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", text)
    return re.sub(r"\bUnpack\[(\w+)\]", r"\1", bare)


def main() -> None:
    """Freeze what is public now."""
    FROZEN.write_text(write_api(), encoding="utf-8")
    print(f"wrote {FROZEN.name}")


if __name__ == "__main__":
    main()
