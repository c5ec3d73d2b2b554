"""Parses a command line to explain it to a person: every simple command in it, and what those do not show.

Uses tree-sitter's grammar of bash. Safety does not depend on it: the sandbox prevents what is not asked about from
writing. `is_explained` is false where bash may do more than the commands show; then only the line itself is shown.
"""

import os
import re
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from treadle.terminal.permissions.known_programs import (
    EXEC_FLAGS,
    RUNNERS,
    leaves_workspace,
    usually_reads,
    words,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

COMMANDS_MAX = 100
_HAZARDS = {
    "command_substitution": "a substitution runs another command",
    "process_substitution": "a substitution runs another command",
    "heredoc_redirect": "a here-document feeds it",
    "herestring_redirect": "a here-string feeds it",
    "function_definition": "a function is defined",
    "simple_expansion": "a variable is not known before it runs",
    "expansion": "a variable is not known before it runs",
    "arithmetic_expansion": "an expression is not known before it runs",
    "brace_expression": "braces are not known before it runs",
    "ansi_c_string": "a string is written in escapes",
    "translated_string": "a string is translated",
    "variable_assignment": "a variable is set",
    "variable_assignments": "a variable is set",
    "declaration_command": "a variable is set",
    "unset_command": "a variable is set",
    "coproc_statement": "it runs in the background",
    "ERROR": "it can not be parsed",
}
_BRANCHES = words(
    "program list pipeline subshell compound_statement negated_command redirected_statement if_statement "
    "elif_clause else_clause while_statement for_statement c_style_for_statement case_statement case_item "
    "do_group"
)
_SAFE_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_SETTING = frozenset({"for_statement", "c_style_for_statement"})
_LITERALS = frozenset({"word", "raw_string", "string", "string_content", "number", "concatenation", "command_name"})
_WORDLIKE = _LITERALS | {"comment", "variable_name", "file_redirect", "file_descriptor"}
_UNSURE = re.compile(r"[^\n\x20-\x7e]|[\\#$`{}!~]|<<|==|\[\[|\(\(|\]")
"""Where a grammar and bash may read a line each in their own way."""
_REDIRECTED_FIRST = re.compile(r"\d*[<>&]")
"""A redirection before the program: such a command is easily misread."""
_PIECE = re.compile(r"'[^']*'|\"[^\"]*\"|&>>?|[<>]+&?|&&|\|\||[;&|\n()]|[^'\"<>&;|\n()]+|.", re.DOTALL)
_ENDS = frozenset({"&&", "||", ";", "&", "|", "\n", "(", ")"})
_RESERVED = words("if then elif else fi while until do done time")
_BRACES = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}")


class Simple(msgspec.Struct, frozen=True, kw_only=True):
    """One simple command: its text with its redirections, its words, and whether it usually only reads."""

    text: str
    words: tuple[str, ...] = ()
    reads: bool = False
    is_far: bool = False


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A command line. With hazards it cannot be remembered; `is_explained` when its commands are all that it does."""

    commands: tuple[Simple, ...] = ()
    hazards: tuple[str, ...] = ()
    is_explained: bool = False


def parse(line: str, *, root: str = "") -> Parsed:
    """Parse a command line; `root` is the folder that redirections may not leave."""
    data = line.encode("utf-8", "replace")
    reader = _Reader(root)
    try:
        tree = _parser().parse(data)
    except ImportError:  # there is no wheel of the grammar for this platform: then everything is asked
        return Parsed(hazards=("tree-sitter-bash is not installed",))
    reader.read(tree.root_node)
    if len(reader.commands) > COMMANDS_MAX:
        reader.hazards["it holds too many commands"] = None
    commands, hazards = tuple(reader.commands[:COMMANDS_MAX]), tuple(reader.hazards)
    is_explained = not hazards and _agrees(line, commands)
    return Parsed(commands=commands, hazards=hazards, is_explained=is_explained)


def _agrees(line: str, commands: tuple[Simple, ...]) -> bool:
    """Return whether a plain reading of the line gives these commands: cut at every operator outside of quotes.

    A second, much simpler opinion. It gives up on everything that is read in more than one way.
    """
    if _UNSURE.search(line) or any(_REDIRECTED_FIRST.match(each.text) for each in commands):
        return False
    segments = [""]
    for piece in _PIECE.findall(line):
        if piece in _ENDS:
            segments.append("")
        else:
            segments[-1] += piece
    found = [" ".join(_without_reserved(segment.split())) for segment in segments]
    return sorted(filter(None, found)) == sorted(" ".join(each.text.split()) for each in commands)


def _without_reserved(found: list[str]) -> list[str]:
    while found and found[0] in _RESERVED:
        found = found[1:]
    return found


@cache
def _parser() -> "Parser":
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Reader:
    def __init__(self, root: str) -> None:
        self._root = root
        self.commands: list[Simple] = []
        self.hazards: dict[str, None] = {}

    def read(self, node: "Node", redirected: "Node | None" = None) -> None:
        """Read a statement; `redirected` is the statement with redirections around a single command."""
        if node.is_missing:
            self.hazards["it can not be parsed"] = None
        match node.type:
            case "command":
                self._command(node, redirected)
            case "test_command":
                self._hazards_in(node)
                self._tested(_text(node).strip("[] "))
                self.commands.append(Simple(text=_text(node), words=("test",), reads=True))
            case "redirected_statement":
                self._redirected(node)
            case kind if kind in _BRANCHES:
                if kind in _SETTING:
                    self.hazards["a variable is set"] = None
                for child in node.named_children:
                    self.read(child)
            case kind:
                if kind not in _WORDLIKE and kind not in _HAZARDS:
                    self.hazards["it holds more than commands"] = None
                self._hazards_in(node)

    def _redirected(self, node: "Node") -> None:
        body = node.child_by_field_name("body")
        for child in node.named_children:
            if body is None or child.id != body.id:
                self._hazards_in(child)
        if body is not None:
            self.read(body, node)
            is_single = body.type == "command"
            if not is_single and not all(_is_harmless(child) for child in node.named_children if child.id != body.id):
                self.hazards["several commands are redirected together"] = None

    def _command(self, node: "Node", redirected: "Node | None") -> None:
        self._hazards_in(node)
        whole = redirected if redirected is not None and redirected.type == "redirected_statement" else node
        words = tuple(_word(child) for child in node.named_children if child.type in _LITERALS)
        redirects = [child for child in (*whole.named_children, *node.named_children) if child.type == "file_redirect"]
        for redirect in redirects:
            self._check_target(redirect)
        program = words[0] if words else ""
        loose = [child for child in node.named_children if child.type in ("word", "concatenation")]
        if any(_BRACES.search(_text(child)) for child in loose):
            self.hazards["braces are not known before it runs"] = None
        if "/" not in program and os.path.basename(program) in RUNNERS:
            self.hazards[f"{program} runs another command"] = None
        if program in ("test", "["):
            self._tested(" ".join(words[1:]))
        if any(word in EXEC_FLAGS for word in words):
            self.hazards["-exec runs another command"] = None
        if os.path.basename(program) in ("sh", "bash", "zsh", "dash", "ksh") and "/" in program:
            self.hazards[f"{program} runs another command"] = None
        self.commands.append(
            Simple(
                text=_text(whole),
                words=words,
                reads=usually_reads(words) and all(_is_harmless(redirect) for redirect in redirects),
                is_far=leaves_workspace(words),
            )
        )

    def _tested(self, text: str) -> None:
        """Note a test that may run something: bash evaluates subscripts in it, also those in quotes."""
        if any(each in text for each in "[$`"):
            self.hazards["a test may run another command"] = None

    def _check_target(self, redirect: "Node") -> None:
        target = redirect.child_by_field_name("destination")
        path = "" if target is None else _word(target)
        if path in _SAFE_TARGETS or path.isdigit():
            return
        inside = os.path.normpath(os.path.join(self._root or "/", path))
        top = (self._root or "/").rstrip("/") + "/"
        if not self._root or not inside.startswith(top) or path.startswith("~"):
            self.hazards[f"a redirection leaves the folder: {path}"] = None

    def _hazards_in(self, node: "Node") -> None:
        """Collect constructs below a node that forbid remembering the command."""
        waiting = [node]
        while waiting:
            each = waiting.pop()
            if (hazard := _HAZARDS.get(each.type)) is not None:
                self.hazards[hazard] = None
            elif each.is_missing:
                self.hazards["it can not be parsed"] = None
            waiting.extend(each.named_children)


def _is_harmless(redirect: "Node") -> bool:
    """Return whether a redirection writes no file: it reads one, joins two streams, or throws away."""
    if redirect.type != "file_redirect":
        return False
    target = redirect.child_by_field_name("destination")
    path = "" if target is None else _word(target)
    is_reading = not any(">" in _text(child) for child in redirect.children if child.type not in _LITERALS)
    return is_reading or path in _SAFE_TARGETS or path.isdigit()


def _text(node: "Node") -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _word(node: "Node") -> str:
    """Return a literal word as the program gets it; quotes and backslashes are taken away."""
    match node.type:
        case "raw_string":
            return _text(node)[1:-1]
        case "string":
            return _text(node)[1:-1].replace('\\"', '"')
        case "command_name" | "concatenation":
            return "".join(_word(child) for child in node.named_children) or _text(node)
        case _:
            return _text(node).replace("\\", "")
