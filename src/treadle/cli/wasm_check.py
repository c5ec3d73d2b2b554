"""Inspects a guest without running it: its kind, imports and exports, and what would prevent it from running."""

from pathlib import Path
from typing import Any

import msgspec

from treadle.cli import command_base as command
from treadle.terminal.rendering.sanitize import clean
from treadle.wasm.cchat_abi import CALLS, MODULE_COMPATIBLE, RULES, TABLE_NAMES, TOOL, calls_of
from treadle.wasm.engine.compiler import Compiler, is_component_code
from treadle.wasm.engine.component_instance import LOG_INTERFACES
from treadle.wasm.engine.minimal_wasi import MODULES as WASI_MODULES
from treadle.wasm.engine.wasmtime_engine import EngineSpec, engine_of
from treadle.wasm.guest_pool import read_guest

Signature = tuple[tuple[str, ...], tuple[str, ...]]
TOOL_GUEST = "tool guest"
_ENTRIES = ("run", "_start", "main")


class GuestFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a guest, and its problems."""

    kind: str
    bytes: int
    imports: list[str] = []
    exports: list[str] = []
    tools: list[str] = []
    problems: list[str] = []
    hints: list[str] = []


def check(path: str, *, as_json: bool) -> int:
    """Print what a guest is; return whether it would run."""
    finding = inspect_guest(read_guest(path))
    if finding.kind == TOOL_GUEST and "describe" not in finding.exports and not Path(f"{path}.json").is_file():
        problem = f"what its tools are is said nowhere: write {Path(path).name}.json beside it, or export `describe`"
        finding = msgspec.structs.replace(finding, problems=[*finding.problems, problem])
    if as_json:
        command.print_json(finding)
    else:
        for line in _lines(path, finding):
            print(clean(line))
    return command.ERROR if finding.problems else command.OK


def inspect_guest(wasm: bytes) -> GuestFinding:
    """Return the kind of a guest, and what would prevent it from running.

    Raises: BadGuest.
    """
    compiler, spec = Compiler(), EngineSpec()
    compiled = compiler.compile(wasm, spec)
    module = compiler.load(compiled, spec)
    if is_component_code(wasm):
        return _inspect_component(wasm, module, engine_of(spec.of(is_component=True)))
    imports: list[Any] = list(module.imports)
    exports: dict[str, Any] = {str(each.name): each.type for each in module.exports}
    tools = [name.removeprefix("tool_") for name, kind in exports.items() if _is_tool(name, kind)]
    has_entry = any(name in exports for name in _ENTRIES)
    problems = [problem for each in imports if (problem := _import_problem(each))]
    if not _is_kind(exports.get("memory"), "MemoryType"):
        problems.append("it exports no memory named `memory`")
    if not has_entry and not tools:
        problems.append(f"it exports neither {', '.join(_ENTRIES)} (a session guest) nor tool_<name> (a tool guest)")
    return GuestFinding(
        kind="session guest" if has_entry else TOOL_GUEST,
        bytes=len(wasm),
        imports=[f"{each.module}.{each.name}" for each in imports],
        exports=sorted(exports),
        tools=tools,
        problems=problems,
        hints=_hints(exports, imports),
    )


def _inspect_component(wasm: bytes, component: Any, engine: Any) -> GuestFinding:
    imports, exports = sorted(component.type.imports(engine)), sorted(component.type.exports(engine))
    problems = [f"it exports no `{name}`" for name in ("describe", "call") if name not in exports]
    strange = [name for name in imports if name not in LOG_INTERFACES]
    hints: list[str] = []
    if any(name.startswith("wasi:") for name in strange):
        hints.append("it imports WASI: build it with --stub-wasi, or give it a [[guest]] with a wasi_… grant")
    problems += [f"it imports {name}, which is not there" for name in strange if not name.startswith("wasi:")]
    if hints:
        problems.append("it imports WASI, which is there only with a grant")
    return GuestFinding(
        kind="component (tools)", bytes=len(wasm), imports=imports, exports=exports, problems=problems, hints=hints
    )


def _hints(exports: dict[str, Any], imports: list[Any]) -> list[str]:
    """Return hints on what is allowed, but often forgotten."""
    registers = any(str(each.name) == "cchat_write_fn" for each in imports)
    hints: list[str] = []
    if registers and not any(_is_kind(kind, "TableType") for kind in exports.values()):
        hints.append(f"it registers tools but exports no table ({', '.join(TABLE_NAMES)}): link with --export-table")
    if registers and not {"cchat_alloc", "malloc"} & set(exports):
        hints.append("it registers tools but exports neither cchat_alloc nor malloc: set tool_arena_ptr and _len")
    if any(str(each.module) == MODULE_COMPATIBLE for each in imports):
        hints.append(f"it imports `{MODULE_COMPATIBLE}`: the older rules hold for it")
    if any(str(each.name) == "path_open" for each in imports):
        hints.append(
            "it opens files: there are none but in folders granted by --read, --write or a [[guest]]'s wasi_read"
        )
    return hints


def _import_problem(wanted: Any) -> str | None:
    module, name = str(wanted.module), str(wanted.name)
    if not _is_kind(wanted.type, "FuncType"):
        return f"it imports {module}.{name}, which is not a function"
    if module in WASI_MODULES:
        return None
    if module not in RULES:
        return f"it imports {module}.{name}; there are only {', '.join(RULES)} and WASI"
    offered = {call.name for call in calls_of(module)}
    if name not in offered:
        return None if module == MODULE_COMPATIBLE else f"it imports {module}.{name}, which is not there"
    if _signature(wanted.type) != CALLS[name].signature:
        return f"it imports {module}.{name} with other types than it has"
    return None


def _is_tool(name: str, kind: Any) -> bool:
    return name.startswith("tool_") and _is_kind(kind, "FuncType") and _signature(kind) == TOOL.signature


def _is_kind(kind: Any, name: str) -> bool:
    return type(kind).__name__ == name


def _signature(kind: Any) -> Signature:
    return tuple(str(each) for each in kind.params), tuple(str(each) for each in kind.results)


def _lines(path: str, finding: GuestFinding) -> list[str]:
    lines = [f"{path}: {finding.kind}, {finding.bytes} bytes"]
    for label, names in (("imports", finding.imports), ("exports", finding.exports), ("tools", finding.tools)):
        if names:
            lines.append(f"  {label:8} {', '.join(names)}")
    lines += [f"  problem  {problem}" for problem in finding.problems]
    lines += [f"  hint     {hint}" for hint in finding.hints]
    return [*lines, "  it would not run" if finding.problems else "  it would run"]
