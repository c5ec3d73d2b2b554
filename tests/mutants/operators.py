"""Which faults can be put into a module: each changes one place, and the rest of the text stays as it is."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}
_LOOSE = (
    ast.NamedExpr,
    ast.BoolOp,
    ast.IfExp,
    ast.Lambda,
    ast.BinOp,
    ast.Compare,
    ast.UnaryOp,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
)
"""What may have stood in brackets, which are no part of it."""
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One fault: where it is, what it does, and the module's text with it."""

    line: int
    what: str
    text: str


class _Place(NamedTuple):
    """What to write over which characters."""

    start: int
    end: int
    new: str
    line: int


def mutants(source: str) -> list[Mutant]:
    """Return every fault that the table below knows, for one module's text."""
    starts = _line_starts(source)
    found: list[Mutant] = []
    for place in _places(ast.parse(source), source, starts):
        old = source[place.start : place.end]
        text = source[: place.start] + place.new + source[place.end :]
        found.append(Mutant(place.line, f"{_short(old)}  ->  {_short(place.new)}", text))
    return found


def _places(tree: ast.Module, source: str, starts: list[int]) -> Iterator[_Place]:
    for node in _walk(tree):
        for target, new in _changes(node, source, starts):
            yield _Place(*_span(target, source, starts), new, target.lineno)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Visit what runs: not annotations, docstrings, words for the type checker, nor what only raises."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"} or (name == "keywords" and _is_checked(node)):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not is_text and not isinstance(child, (ast.Raise, ast.Assert)):
                yield from _walk(child)


def _changes(node: ast.AST, source: str, starts: list[int]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    def text(part: ast.expr | ast.stmt) -> str:
        start, end = _span(part, source, starts)
        return f"({source[start:end]})" if isinstance(part, _LOOSE) else source[start:end]

    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, f"{text(left)} {_COMPARISONS[type(op)]} {text(right)}"
        case ast.BoolOp(op=op, values=[first, *others]):
            word = " or " if isinstance(op, ast.And) else " and "
            yield node, "(" + word.join(text(value) for value in (first, *others)) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, text(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC and not _is_text(left, right):
            yield node, f"({text(left)} {_ARITHMETIC[type(op)]} {text(right)})"
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(value)):
            yield node, str(value + 1)
        case ast.Call(func=ast.Name(id=name) as called) if name in _NAMES:
            yield called, _NAMES[name]
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.match_case(guard=ast.expr() as test):
            yield from ((part, f"(not {text(part)})") for part in (test,) if not _is_turned(part))
        case ast.comprehension(ifs=conditions):
            yield from ((part, f"(not {text(part)})") for part in conditions if not _is_turned(part))
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant) and not _is_empty(value):
            yield value, "None"
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
            pass  # nobody comes there
        case ast.Expr(value=ast.Call()) | ast.Expr(value=ast.Await()) | ast.AugAssign():
            yield node, "pass"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case _:
            pass


def _is_checked(node: ast.AST) -> bool:
    """Say whether the keywords of a node only promise something: those of a class, and that two lists are as long."""
    return isinstance(node, ast.ClassDef) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip"
    )


def _is_turned(test: ast.expr) -> bool:
    """Say whether another row turns the condition round already, or it is about types."""
    is_other = isinstance(test, ast.UnaryOp) or (isinstance(test, ast.Compare) and len(test.ops) == 1)
    return is_other or (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING")


def _is_empty(value: ast.expr) -> bool:
    """Say whether it is an empty list or the like, which callers take as they take None."""
    return not getattr(value, "elts", getattr(value, "keys", (value,)))


def _is_text(*parts: ast.expr) -> bool:
    return any(isinstance(p, (ast.JoinedStr, ast.List, ast.Tuple)) or _is_string(p) for p in parts)


def _is_string(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes))


def _line_starts(source: str) -> list[int]:
    """Return where each line begins, in characters."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(node: ast.expr | ast.stmt, source: str, starts: list[int]) -> tuple[int, int]:
    """Return which characters a node stands in; the parser counts bytes of UTF-8."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.splitlines(keepends=True)

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def _short(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= 70 else folded[:69] + "…"
