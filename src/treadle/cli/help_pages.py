"""Completes help texts: actions get a description and their examples, commands a list of related documents.

Examples of an action are those lines of its command's that begin with it, so that they are written once.
"""

import argparse
import re

from treadle.cli.argument_parser import actions_of, commands_of

SEE_ALSO: dict[str, str] = {
    "serve": "treadle doctor, treadle keys, treadle login; docs/operations.md, docs/configuration.md",
    "chat": "treadle run, treadle sessions; docs/terminal.md",
    "run": "treadle chat, treadle approvals; docs/terminal.md",
    "replay": "treadle diff, treadle audit; docs/journal.md",
    "tools": "treadle mcp, treadle wasm; docs/tools.md",
    "models": "treadle doctor --online, treadle config show; docs/upstreams.md",
    "dialects": "docs/dialects.md",
    "mcp": "treadle tools; docs/mcp.md",
    "login": "treadle keys; docs/pages.md",
    "keys": "treadle login, treadle doctor --key-env; docs/keys.md",
    "doctor": "treadle config check, treadle store check; docs/troubleshooting.md",
    "config": "treadle doctor, treadle trust; docs/configuration.md",
    "trust": "treadle config check, treadle doctor; docs/configuration.md",
    "eval": "treadle export --scenario; docs/evals.md",
    "sessions": "treadle chat -r, treadle export; docs/journal.md",
    "logs": "treadle sessions search, treadle plan, treadle export; docs/journal.md",
    "ws": "docs/workspace.md",
    "approvals": "treadle ws proposals; docs/approvals.md",
    "store": "treadle audit, treadle export, treadle doctor; docs/operations.md",
    "plan": "treadle replay, treadle diff; docs/journal.md",
    "export": "treadle audit verify --file, treadle store backup; docs/journal.md",
    "audit": "treadle store check, treadle export; docs/journal.md",
    "diff": "treadle replay, treadle plan; docs/journal.md",
    "cassette": "treadle serve --record, treadle eval; docs/cassettes.md",
    "wasm": "treadle tools; docs/wasm.md",
    "completion": "docs/commands.md",
}
"""Which commands and documents stand beside a command."""

_EXAMPLES = "examples:\n"
_TITLE = re.compile(r"^\S.*:$")
_ROW = re.compile(r"(?P<name> +\S.*?) {2,}(?P<meaning>\S.*)")
_MARGIN = 2
"""Columns that argparse leaves free at the right; what was laid out by hand may use them."""
_MEANING_COLUMNS_MIN = 24
_BELOW = " " * 6


class Manual(argparse.RawDescriptionHelpFormatter):
    """Keeps hand-made layout where it fits; in a narrow terminal lines are broken between words."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks: list[str] = []
        for line in text.split("\n"):
            if blocks and _is_prose(line) and _is_prose(blocks[-1]):
                blocks[-1] += f"\n{line}"
            else:
                blocks.append(line)
        return "\n".join(fit(block, width, width + _MARGIN) for block in blocks)


def _is_prose(text: str) -> bool:
    return text[:1] not in ("", " ") and not text.endswith(":")


def fit(block: str, width: int, columns: int) -> str:
    """Return a paragraph, or a line of a list, so that it fits into so many columns; commands are not broken."""
    if all(len(line) <= columns for line in block.split("\n")):
        return block
    import textwrap

    if not block.startswith(" "):
        return textwrap.fill(" ".join(block.split("\n")), width, break_long_words=False, break_on_hyphens=False)
    row = _ROW.fullmatch(block)
    if row is None:
        return block
    start = row.start("meaning")
    is_beside = width - start >= _MEANING_COLUMNS_MIN
    margin = " " * start if is_beside else _BELOW
    meaning = textwrap.wrap(row["meaning"], width - len(margin))
    first = block[:start] + meaning.pop(0) if is_beside else row["name"]
    return "\n".join([first, *(margin + line for line in meaning)])


def finish_help(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the closing lines of a command, and descriptions and examples to its actions."""
    examples = examples_of(parser.epilog or "")
    for action, inner in commands_of(parser).items():
        inner.formatter_class = Manual
        inner.description = inner.description or _sentence(_summary(parser, action))
        own = [line for line in examples if _begins(line, f"treadle {name} {action}")] or [_plainly(inner)]
        if not inner.epilog:
            inner.epilog = "\n".join([_EXAMPLES.rstrip(), *(f"  {line}" for line in own)])
    if see := SEE_ALSO.get(name):
        parser.epilog = f"{(parser.epilog or '').rstrip()}\n\nsee also: {see}".lstrip()


def examples_of(epilog: str) -> list[str]:
    """Return the lines under `examples:`, up to the next title or empty line."""
    _, found, rest = epilog.partition(_EXAMPLES)
    lines: list[str] = []
    for line in rest.splitlines() if found else ():
        if not line.startswith("  ") or _TITLE.match(line):
            break
        lines.append(line.strip())
    return lines


def _plainly(parser: argparse.ArgumentParser) -> str:
    """Return the shortest line that a parser takes."""
    words = [each for each in actions_of(parser) if not each.option_strings and each.nargs not in ("?", "*")]
    return " ".join([parser.prog, *(str(each.metavar or each.dest.upper()) for each in words)])


def _begins(line: str, words: str) -> bool:
    """Return whether an example is one of these words, whatever variables or pipes stand before them."""
    return re.search(rf"(^|[ |(]){re.escape(words)}(\s|$)", line) is not None


def _summary(parser: argparse.ArgumentParser, action: str) -> str:
    listed = next(each for each in actions_of(parser) if isinstance(each.choices, dict))._choices_actions
    return next((str(each.help) for each in listed if each.dest == action), action)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
