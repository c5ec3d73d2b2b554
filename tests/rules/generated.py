"""Texts in the documents that are made from code. A test compares them; `python -m rules.generated` rewrites them.

A document marks such a text with `<!-- generated: NAME -->` and `<!-- end -->`, each on a line of its own.
"""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import cast, get_args

import msgspec

from hostile.rows import table as bad_inputs
from rules import readmes, reference, test_cost
from rules.bounds import fixed_bounds
from rules.endings import endings
from rules.tree import ROOT, files, shown
from treadle.cli.commands.dialects_command import rows as dialect_rows
from treadle.cli.doctor.guarantees import GUARANTEES, NOT_GUARANTEED
from treadle.cli.main import COMMANDS
from treadle.config import Settings, StoreSection, write_example
from treadle.config.repository_file import TIGHTER as REPOSITORY_KEYS
from treadle.config.settings import ToolRule
from treadle.core.tool_definitions import SANDBOXES, ToolPolicy
from treadle.protocols.feature_table import FEATURES, Support
from treadle.protocols.translation.upstream_features import FeatureRule
from treadle.providers.quirk_table import PRESETS, QUIRKS, Preset, Quirk
from treadle.runtime import Runtime
from treadle.server.app import App
from treadle.telemetry.prometheus import Series
from treadle.terminal.editor.key_bindings import BUILT_IN, KEYS
from treadle.terminal.permissions.permission_policy import MODES
from treadle.terminal.rendering.jsonl_output import DOCUMENTED as RUN_EVENTS
from treadle.terminal.slash_commands.command_registry import COMMANDS as SLASH
from treadle.tools.policy_rules import TIGHTER
from treadle.tools.sandbox.protected_paths import PROTECTED

_BLOCK = re.compile(r"<!-- generated: (?P<name>[a-z-]+) -->\n(?P<text>.*?)<!-- end -->", re.DOTALL)


def _config_example() -> str:
    return f"```toml\n{write_example().rstrip()}\n```\n"


def _protected_paths() -> str:
    """Write the protected paths, those with one reason together."""
    reasons: dict[tuple[str, bool], list[str]] = {}
    for row in PROTECTED:
        reasons.setdefault((row.why, row.is_held), []).append(f"`{row.name}`")
    rows = [f"| {', '.join(names)} | {why} | {'yes' if held else ''} |" for (why, held), names in reasons.items()]
    return "\n".join(["| path | because | held |", "|---|---|---|", *rows, ""])


def _commands() -> str:
    """Write the commands as a table; their flags are left to `--help`, which words them by Python version."""
    rows = [f"| `treadle {entry.name}` | {entry.summary} |" for entry in COMMANDS]
    return "\n".join(["| command | what it does |", "|---|---|", *rows, ""])


PROTOCOL_NAMES = {"chat": "Chat", "responses": "Responses", "messages": "Messages", "gemini": "Gemini"}


def _protocols() -> str:
    """Write what each protocol supports: one table for clients, one for upstreams."""
    clients = _support_table("A client that speaks", {each.name: each.clients for each in FEATURES})
    upstreams = _support_table("An upstream that speaks", {each.name: each.upstreams for each in FEATURES})
    return f"{clients}\n{upstreams}"


def _support_table(title: str, rows: dict[str, dict[str, Support]]) -> str:
    head = [f"| {title} | {' | '.join(PROTOCOL_NAMES.values())} |", "|---" * (len(PROTOCOL_NAMES) + 1) + "|"]
    body = [f"| {name} | {' | '.join(_cell(row[each]) for each in PROTOCOL_NAMES)} |" for name, row in rows.items()]
    return "\n".join([*head, *body, ""])


def _cell(support: Support) -> str:
    return f"{support.level}: {support.how}" if support.how else support.level


def _quirks() -> str:
    """Write all quirks: those that change a request, those that are only counted, and whose they are."""
    head = "| quirk | what is seen | what is done | seen in |\n|---|---|---|---|"
    acting = [_quirk(name, quirk) for name, quirk in QUIRKS.items() if not quirk.is_detector]
    counted = [_quirk(name, quirk) for name, quirk in QUIRKS.items() if quirk.is_detector]
    presets = [_preset(name, preset) for name, preset in PRESETS.items()]
    owners = ["| preset | protocol | found at | its quirks |", "|---|---|---|---|", *presets]
    return "\n".join([head, *acting, "", head.replace("quirk", "counted"), *counted, "", *owners, ""])


def _quirk(name: str, quirk: Quirk) -> str:
    done = [f"{trait}: {_trait(value)}" for trait, value in quirk.traits.items()]
    done += [f"leaves out `{field}`" for field in (*quirk.drops, *quirk.omits)]
    done += [f"`{old}` becomes `{new}`" for old, new in quirk.renames.items()]
    done += [f"messages: {edit.replace('_', ' ')}" for edit in quirk.messages]
    done += [f"the key in `{quirk.key_header}`"] if quirk.key_header else []
    done += [f"told as `{code}`" for code in quirk.codes]
    cells = (f"`{name}`", quirk.symptom, "; ".join(done), quirk.source)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _trait(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, FeatureRule):
        return f"{'exactly' if value.exact else 'at most'} {value.chars_max} characters"
    return ", ".join(sorted(cast("frozenset[str]", value))) if isinstance(value, frozenset) else str(value)


def _preset(name: str, preset: Preset) -> str:
    models = [f"`{quirk}` of `{piece}`" for piece, quirks in preset.models.items() for quirk in quirks]
    named = [*(f"`{quirk}`" for quirk in preset.quirks), *models]
    hosts = ", ".join(f"`{host}`" for host in preset.hosts) or "named only"
    return f"| `{name}` | {PROTOCOL_NAMES[preset.protocol]} | {hosts} | {', '.join(named)} |"


def _dialects() -> str:
    """Write every dialect: its tier for a model that is not its own, the models it is native to, and its form."""
    rows = [
        f"| `{row.id}` | {row.tier} | {', '.join(row.models) or '-'} | {_code(row.form)} |" for row in dialect_rows()
    ]
    return "\n".join(["| dialect | tier | native to models named like | form |", "|---|---|---|---|", *rows, ""])


def _code(text: str) -> str:
    """Write text as inline code in a table, whatever backticks and bars are in it."""
    ticks = "`" * (4 if "```" in text else 1)
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}".replace("|", "\\|")


def _guarantees() -> str:
    """Write every guarantee: its sentence, what enforces it, and the tests that show it."""
    rows = [
        f"| `{row.name}` | {row.text} | {row.by} | {', '.join(f'`{test}`' for test in row.tests)} |"
        for row in GUARANTEES
    ]
    return "\n".join(["| name | what is guaranteed | enforced by | shown by |", "|---|---|---|---|", *rows, ""])


def _not_guaranteed() -> str:
    return "".join(f"- {words}\n" for words in NOT_GUARANTEED)


def _policy_fields() -> str:
    """Write the fields of a tool's policy: the default, what each says, and which way is the tighter."""
    words = {field.name: _description(field.type) for field in msgspec.structs.fields(ToolRule)}
    rows = [
        f"| `{field.name}` | {_value(field.default)} | {words[field.name]} | {TIGHTER[field.name][0]} |"
        for field in msgspec.structs.fields(ToolPolicy)
    ]
    return "\n".join(["| field | default | what it says | tighter is |", "|---|---|---|---|", *rows, ""])


def _sandboxes() -> str:
    """Write the words for where a tool ran."""
    rows = [f"| `{word}` | {meaning} |" for word, meaning in SANDBOXES.items()]
    return "\n".join(["| `sandbox` | the tool ran |", "|---|---|", *rows, ""])


def _repository_keys() -> str:
    """Write the keys that a repository's own file may set."""
    return ", ".join(f"`{key}`" for key in sorted(REPOSITORY_KEYS)) + "\n"


def _bad_inputs() -> str:
    """Write how many classes of bad input there are, and what comes of them."""
    groups = tomllib.loads((ROOT / "tests" / "hostile" / "classes.toml").read_text(encoding="utf-8"))
    head = ["| classes of bad input | | refused | accepted | repaired | tried by |", "|---|---|---|---|---|---|"]
    rows: list[str] = []
    for group, fields in groups.items():
        found = [row for row in bad_inputs() if row.id.startswith(f"{group}.")]
        counts = [sum(row.comes == comes for row in found) for comes in ("refused", "accepted", "repaired")]
        live = sum(row.tries is not None for row in found)
        by = (
            "this suite"
            if live == len(found)
            else "others"
            if not live
            else f"this suite {live}, others {len(found) - live}"
        )
        rows.append(f"| {fields['title']} | {len(found)} | {' | '.join(map(str, counts))} | {by} |")
    return "\n".join([*head, *rows, ""])


def _description(kind: object) -> str:
    metas = (meta for meta in get_args(kind)[1:] if isinstance(meta, msgspec.Meta))
    return next((meta.description for meta in metas if meta.description), "")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value) if value != () else "none"


def _keys() -> str:
    """Write the keys of the chat."""
    rows = [(key.shown, key.does) for key in KEYS] + list(BUILT_IN)
    return "\n".join(["| key | what it does |", "|---|---|", *(f"| {shown} | {does} |" for shown, does in rows), ""])


def _slash_commands() -> str:
    """Write the commands inside the chat."""
    rows = [f"| {_code(f'{name} {slash.takes}'.strip())} | {slash.summary} |" for name, slash in SLASH.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows, ""])


def _run_events() -> str:
    """Write the events of `treadle run --output jsonl`."""
    rows = [f"| `{name}` | {fields} |" for name, fields in RUN_EVENTS.items()]
    return "\n".join(["| `type` | fields |", "|---|---|", *rows, ""])


def _terminal_policies() -> str:
    """Write what runs unasked in the terminal."""
    rows = [f"| `{mode}` | {words} |" for mode, words in MODES.items()]
    return "\n".join(["| policy | what it means |", "|---|---|", *rows, ""])


def all_series() -> list[Series]:
    """Return every series that a server gives, by name."""
    app = App(Runtime(Settings(store=StoreSection(persistence="off"))))
    return sorted(app.service.runtime.metrics.registry.collect(), key=lambda each: each.name)


def _metrics() -> str:
    """Write every series: its name as it is scraped, its type, its labels, and what it says."""
    rows: list[str] = []
    for series in all_series():
        name = f"{series.name}_total" if series.kind == "counter" else series.name
        labels = ", ".join(f"`{each}`" for each in series.labels) or "-"
        rows.append(f"| `{name}` | {series.kind} | {labels} | {series.text} |")
    return "\n".join(["| series | type | labels | what it says |", "|---|---|---|---|", *rows, ""])


def _calls() -> str:
    """Write how many Python calls the guard of the hot path allows, before its margin."""
    rows = {
        "a plain request, no journal": test_cost.REQUEST["off"],
        "a plain request, SQLite": test_cost.REQUEST["on"],
        **{f"one more event of a stream, {form}": calls for form, calls in test_cost.EVENT.items()},
        "one more turn of history": test_cost.TURN,
        "one more tool round": test_cost.ROUND,
    }
    return "\n".join(
        ["| | Python calls |", "|---|---:|", *(f"| {name} | {calls:g} |" for name, calls in rows.items()), ""]
    )


GENERATORS: dict[str, Callable[[], str]] = {
    "endpoints": reference.write_endpoints,
    "cli": reference.write_cli,
    "events": reference.write_events,
    "host-calls": reference.write_host_calls,
    "library": reference.write_library,
    "mistakes": reference.write_mistakes,
    "decisions": reference.write_decisions,
    "metrics": _metrics,
    "terminal-keys": _keys,
    "terminal-commands": _slash_commands,
    "terminal-events": _run_events,
    "terminal-policies": _terminal_policies,
    "bad-inputs": _bad_inputs,
    "guarantees": _guarantees,
    "not-guaranteed": _not_guaranteed,
    "endings": endings,
    "policy-fields": _policy_fields,
    "protected-paths": _protected_paths,
    "repository-keys": _repository_keys,
    "sandboxes": _sandboxes,
    "config-example": _config_example,
    "fixed-bounds": fixed_bounds,
    "commands": _commands,
    "protocols": _protocols,
    "dialects": _dialects,
    "quirks": _quirks,
    "calls": _calls,
}
"""What can be generated, by name."""


def documents() -> list[Path]:
    """Return the documents of the project."""
    return [path for path in files() if path.suffix == ".md" and "node_modules" not in path.parts]


def blocks(path: Path) -> list[tuple[str, str]]:
    """Return the generated texts of a document by name, as they are written there."""
    return [(match["name"], match["text"]) for match in _BLOCK.finditer(path.read_text(encoding="utf-8"))]


def _renewed(match: re.Match[str]) -> str:
    return f"<!-- generated: {match['name']} -->\n{GENERATORS[match['name']]()}<!-- end -->"


def main() -> None:
    """Rewrite every generated text, and the READMEs of the source."""
    for path in documents():
        old = path.read_text(encoding="utf-8")
        new = _BLOCK.sub(_renewed, old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            print(f"rewrote {shown(path)} in {ROOT.name}")
    for path in readmes.renew():
        print(f"renewed {shown(path)} in {ROOT.name}")


if __name__ == "__main__":
    main()
