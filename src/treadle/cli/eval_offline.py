"""Offline scenarios: played in several processes, reported, and stored in a folder if one is named."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.eval_flags import positive
from treadle.cli.progress_bar import show_progress
from treadle.core.errors import ConfigError
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.evals.offline_runner import Played
    from treadle.evals.results.result_folder import RunFolder
    from treadle.evals.scenario_file import Scenario

WHOLE = "whole"
JOBS_MAX = 8


def play_offline(args: argparse.Namespace) -> int:
    """Play, print, and return how it went."""
    from treadle.evals.offline_runner import Task, run_tasks
    from treadle.evals.scenario_file import find_scenarios, read_scenarios
    from treadle.evals.suite_report import write_json, write_junit, write_table
    from treadle.protocols.protocol_registry import PROTOCOL_NAMES

    protocols = tuple(args.protocols or PROTOCOL_NAMES)
    if unknown := [name for name in protocols if name not in PROTOCOL_NAMES]:
        raise ConfigError(f"there is no protocol {unknown[0]!r}", param="protocols", hint=", ".join(PROTOCOL_NAMES))
    files = find_scenarios(*args.paths)
    read, unread = read_scenarios(files)
    tasks = [
        Task(
            file=str(file),
            protocols=protocols,
            chunk_sizes=_sizes(args.cuts),
            only=tuple(args.scenarios or ()),
            unread=unread.get(file, ""),
        )
        for file in files
    ]
    jobs = args.jobs or min(JOBS_MAX, os.cpu_count() or 1, len(tasks) // 8 + 1)
    played: list[Played] = []
    with show_progress("playing") as progress:
        result = run_tasks(tasks, jobs=jobs, heed=played.append, tell=progress)
    if args.out is not None:
        _store_run(args.out, list(read.values()), played)
    if args.junit is not None:
        write_text(args.junit, write_junit(result), "junit")
    print(write_json(result).decode() if args.json else clean(write_table(result)), end="")
    return result.exit_code


def _sizes(cuts: Sequence[str] | None) -> tuple[int | None, ...]:
    try:
        return tuple(None if cut == WHOLE else positive(cut) for cut in cuts or ())
    except ValueError:
        raise ConfigError("--cuts takes sizes in bytes and `whole`", param="cuts", hint="--cuts 1,7,whole") from None


def _store_run(path: Path, scenarios: "Sequence[Scenario]", played: "Sequence[Played]") -> None:
    """Write the folder of the run; two plays of the same scenarios write the same bytes."""
    from treadle.evals.results.fingerprint import code_fingerprints, scenario_fingerprint
    from treadle.evals.results.result_folder import EvalRunInfo, RunFolder
    from treadle.evals.results.sample_rows import row_of

    show_progress = {each.sample.scenario for each in played if each.evidence is not None}
    scenarios = [each for each in scenarios if each.id in show_progress]
    folder = RunFolder(path)
    folder.create(
        EvalRunInfo(
            name="offline",
            fingerprints=code_fingerprints(),
            scenario_fingerprints={each.id: scenario_fingerprint(each) for each in scenarios},
            scenarios=tuple(scenarios),
        )
    )
    for each in played:
        folder.add(row_of(each.sample), each.evidence)
    write_reports(folder)
    print(f"kept in {path}", file=sys.stderr)


def write_reports(folder: "RunFolder", skipped: Sequence[str] = ()) -> None:
    """Write the pages of a run."""
    import msgspec

    from treadle.evals.results.html_report import write_page
    from treadle.evals.results.junit import write_junit_rows
    from treadle.evals.results.terminal_table import summarise

    info, rows = folder.info(), folder.rows()
    folder.write("summary.json", msgspec.json.format(msgspec.json.encode(summarise(rows)), indent=1) + b"\n")
    folder.write("report.html", write_page(info, rows, folder.evidence).encode())
    folder.write("junit.xml", write_junit_rows(rows, skipped).encode())


def write_text(file: Path, text: str, param: str) -> None:
    """Write a file that was asked for. Raises: ConfigError."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can not write {file}: {error.strerror or error}", param=param) from None


def list_scenarios(args: argparse.Namespace) -> int:
    """List scenarios with their tags."""
    from treadle.evals.scenario_file import find_scenarios, load_scenario

    found = [load_scenario(file) for file in find_scenarios(*(Path(path) for path in args.paths))]
    chosen = [each for each in found if each.matches(args.scenarios or ())]
    width = max([0, *(len(each.id) for each in chosen)])
    for each in chosen:
        print(clean(f"{each.id:<{width}}  {each.title} [{', '.join(each.tags)}]"))
    return 0


def print_schema(args: argparse.Namespace) -> int:
    """Print the JSON Schema of scenario files."""
    from treadle.evals.scenario_file import write_schema

    sys.stdout.write(write_schema().decode())
    return 0
