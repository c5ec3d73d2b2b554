"""The `outline` tool: the definitions in a source file, by tree-sitter where installed, for Python also by `ast`.

The file is only parsed; nothing is imported or run.
"""

import ast
import functools
import importlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.local.file_write import HASHED_BYTES_MAX, read_whole
from treadle.tools.local.result_limits import (
    DEFAULT_CAPS,
    LocalCaps,
    answer,
    decoded,
    fitting,
    readable,
    replaced_words,
)
from treadle.tools.local.safe_open import Root, refusal
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext

LINE_CHARS_MAX = 160
DEPTH_MAX = 200
ENVELOPE_BYTES = 300
"""The most bytes of JSON around the lines."""


class OutlineGrammar(msgspec.Struct, frozen=True, kw_only=True):
    """One language: its grammar package, the function that loads it, and the node types that are definitions."""

    package: str
    kinds: frozenset[str]
    function: str = "language"


_PYTHON = OutlineGrammar(package="tree_sitter_python", kinds=frozenset({"class_definition", "function_definition"}))
_SCRIPT_KINDS = frozenset(
    {
        "class_declaration",
        "abstract_class_declaration",
        "function_declaration",
        "generator_function_declaration",
        "method_definition",
        "interface_declaration",
        "type_alias_declaration",
        "enum_declaration",
        "internal_module",
    }
)
_JAVASCRIPT = OutlineGrammar(package="tree_sitter_javascript", kinds=_SCRIPT_KINDS)
_TYPESCRIPT = OutlineGrammar(package="tree_sitter_typescript", kinds=_SCRIPT_KINDS, function="language_typescript")
_TSX = OutlineGrammar(package="tree_sitter_typescript", kinds=_SCRIPT_KINDS, function="language_tsx")
_GO = OutlineGrammar(
    package="tree_sitter_go", kinds=frozenset({"function_declaration", "method_declaration", "type_declaration"})
)
_RUST = OutlineGrammar(
    package="tree_sitter_rust",
    kinds=frozenset(
        {
            "function_item",
            "function_signature_item",
            "struct_item",
            "enum_item",
            "trait_item",
            "impl_item",
            "mod_item",
            "type_item",
            "macro_definition",
        }
    ),
)
_C = OutlineGrammar(
    package="tree_sitter_c",
    kinds=frozenset(
        {"function_definition", "struct_specifier", "enum_specifier", "union_specifier", "type_definition"}
    ),
)
_JAVA = OutlineGrammar(
    package="tree_sitter_java",
    kinds=frozenset(
        {
            "class_declaration",
            "interface_declaration",
            "enum_declaration",
            "record_declaration",
            "method_declaration",
            "constructor_declaration",
        }
    ),
)
_BASH = OutlineGrammar(package="tree_sitter_bash", kinds=frozenset({"function_definition"}))
LANGUAGES = {
    ".py": _PYTHON,
    ".pyi": _PYTHON,
    ".js": _JAVASCRIPT,
    ".mjs": _JAVASCRIPT,
    ".cjs": _JAVASCRIPT,
    ".jsx": _JAVASCRIPT,
    ".ts": _TYPESCRIPT,
    ".mts": _TYPESCRIPT,
    ".tsx": _TSX,
    ".go": _GO,
    ".rs": _RUST,
    ".c": _C,
    ".h": _C,
    ".java": _JAVA,
    ".sh": _BASH,
    ".bash": _BASH,
}
_NEEDS_BODY = frozenset({"struct_specifier", "enum_specifier", "union_specifier"})
"""In C, nodes of these types without a body are uses of a type, not definitions."""


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """One definition: its line and its nesting depth."""

    line: int
    depth: int


def make_outline(root: Root, caps: LocalCaps = DEFAULT_CAPS) -> Callable[..., ToolAnswer]:
    """Return the tool's function for one root."""

    def outline(context: ToolContext, path: Annotated[str, msgspec.Meta(min_length=1)]) -> ToolAnswer:
        """List the classes and functions that a source file defines, with their lines.

        Args:
            path: The file, relative to the root.
        """
        source = _source(root, path)
        suffix = os.path.splitext(path)[1].lower()
        symbols = list(_symbols(source, suffix, path))
        return _answer(symbols, source, context.output_bytes_max - ENVELOPE_BYTES, caps.outline_symbols_max)

    return outline


def _source(root: Root, path: str) -> bytes:
    fd = root.open(path).fd
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ToolError(f"Not a regular file: {path}", code="not_a_file")
        source = read_whole(fd)
    except OSError as error:
        raise refusal(error, path) from None
    finally:
        os.close(fd)
    if len(source) > HASHED_BYTES_MAX:
        raise ToolError(f"Too large for an outline: {path}", code="too_large")
    return source


def _symbols(source: bytes, suffix: str, path: str) -> Iterator[Symbol]:
    grammar = LANGUAGES.get(suffix)
    parser = None if grammar is None else _parser(grammar)
    if grammar is not None and parser is not None:
        return _of_tree(parser.parse(source).root_node, grammar)
    if grammar is _PYTHON:
        return _of_python(source, path)
    what = f"for {suffix} files" if suffix else "for files without a suffix"
    hint = "" if grammar is None else "; the extra treadle[outline] has it"
    raise ToolError(f"There is no outline {what}{hint}.", code="outline_not_available")


@functools.cache
def _parser(grammar: OutlineGrammar) -> Any:
    """Return a parser, or None if the grammar is not installed."""
    try:
        sitter: Any = importlib.import_module("tree_sitter")
        package: Any = importlib.import_module(grammar.package)
    except ImportError:
        return None
    return sitter.Parser(sitter.Language(getattr(package, grammar.function)()))


def _of_tree(top: Any, grammar: OutlineGrammar) -> Iterator[Symbol]:
    pending: list[tuple[Any, int]] = [(top, 0)]
    while pending:
        node, depth = pending.pop()
        is_symbol = node.type in grammar.kinds and (
            node.type not in _NEEDS_BODY or node.child_by_field_name("body") is not None
        )
        if is_symbol:
            yield Symbol(line=node.start_point[0] + 1, depth=depth)
        if depth < DEPTH_MAX:
            pending += [(child, depth + is_symbol) for child in reversed(node.named_children)]


def _of_python(source: bytes, path: str) -> Iterator[Symbol]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"Not valid Python: {path}: {error}", code="invalid_source") from None
    pending: list[tuple[ast.AST, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        is_symbol = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield Symbol(line=node.lineno, depth=depth)
        pending += [(child, depth + is_symbol) for child in reversed(list(ast.iter_child_nodes(node)))]


def _answer(symbols: list[Symbol], source: bytes, room: int, most: int) -> ToolAnswer:
    lines = decoded(source).split("\n")
    is_cut = False
    written: list[str] = []
    for symbol in symbols[:most]:
        words = lines[symbol.line - 1].strip().removesuffix("{").rstrip()
        if len(words) > LINE_CHARS_MAX:
            words, is_cut = f"{words[:LINE_CHARS_MAX]}…", True
        written.append(f"{symbol.line:6d}\t{'  ' * symbol.depth}{words}")
    shown = fitting((readable(line)[0] for line in written), room)
    replaced = sum(readable(line)[1] for line in written[: len(shown)])
    body: dict[str, Any] = {"output": "\n".join(shown), "count": len(symbols)}
    if is_cut or len(shown) < len(symbols):
        body["truncated"] = True
    if len(shown) < len(symbols):
        body["next"] = {"tool": "file_read", "offset": symbols[len(shown)].line}
    summary = f"{len(symbols)} symbol{'' if len(symbols) == 1 else 's'} found"
    return answer(body, summary, warnings=replaced_words(replaced))
