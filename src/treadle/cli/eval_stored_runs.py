"""Actions on stored eval runs: compare, regrade, report, promote, export, and detect quirks."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.cli.eval_offline import write_reports, write_text
from treadle.core.errors import ConfigError, NotFound, RequestError
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.evals.results.result_folder import RunFolder
    from treadle.evals.results.sample_rows import SampleRow
    from treadle.evals.scenario_file import Scenario

FOLDER = "eval-runs"


def _folders(args: argparse.Namespace, count: int, form: str) -> "list[RunFolder]":
    from treadle.evals.results.result_folder import RunFolder

    if len(args.paths) != count:
        raise RequestError(f"treadle eval {form}", param="prompt", hint="RUN is the folder of a run")
    return [RunFolder(Path(path)) for path in args.paths]


def compare(args: argparse.Namespace) -> int:
    """Compare two runs; 1 when the second is worse."""
    from treadle.evals.results.compare import check_comparable, write_comparison
    from treadle.evals.results.compare import compare as compare_rows

    first, second = _folders(args, 2, "compare takes two runs")
    if args.regrade:
        now = second.info().by_id
        before, after = first.regrade(now), second.regrade(now)
    else:
        check_comparable(first.info(), second.info())
        before, after = first.rows(), second.rows()
    found = compare_rows(before, after)
    if args.json:
        command.print_json(found)
    else:
        print(clean(write_comparison(found)), end="")
    return command.ERROR if any(each.is_regression for each in found) else command.OK


def regrade(args: argparse.Namespace) -> int:
    """Grade a run again from its transcripts, and write what changed."""
    from treadle.evals.results.fingerprint import code_fingerprints
    from treadle.evals.results.pass_fail_gate import judge_run, write_failures
    from treadle.evals.results.result_folder import RUN
    from treadle.evals.results.terminal_table import write_summary
    from treadle.evals.scenario_file import find_scenarios, load_scenario

    (folder,) = _folders(args, 1, "regrade takes one run")
    known = {each.id: each for each in map(load_scenario, find_scenarios())}
    before, rows = folder.rows(), folder.regrade(known)
    changed = [(old, new) for old, new in zip(before, rows, strict=True) if old.outcome != new.outcome]
    _renew(folder, known, rows)
    for old, new in changed:
        print(clean(f"{new.key}: {old.outcome} → {new.outcome} {new.reason}"))
    print(f"{len(changed)} of {len(rows)} samples changed; graders {code_fingerprints()['graders']}, see {RUN}")
    print(clean(write_summary(rows)), end="")
    print(clean(write_failures(rows)), end="", file=sys.stderr)
    return judge_run(rows).exit_code


def _renew(folder: "RunFolder", known: "dict[str, Scenario]", rows: "list[SampleRow]") -> None:
    """Write the run as it is graded now: with the graders and expectations of now, played as it was then."""
    import msgspec

    from treadle.evals.graders import GRADER_VERSION
    from treadle.evals.results.fingerprint import code_fingerprints, scenario_fingerprint
    from treadle.evals.results.result_folder import RUN

    info = folder.info()
    scenarios = [
        msgspec.structs.replace(each, expect=known[each.id].expect) if each.id in known else each
        for each in info.scenarios
    ]
    info = msgspec.structs.replace(
        info,
        grader_version=GRADER_VERSION,
        fingerprints={**info.fingerprints, "graders": code_fingerprints()["graders"]},
        scenario_fingerprints={each.id: scenario_fingerprint(each) for each in scenarios},
        scenarios=tuple(scenarios),
    )
    folder.write(RUN, msgspec.json.format(msgspec.json.encode(info, order="deterministic"), indent=1) + b"\n")
    folder.rewrite(rows)
    write_reports(folder)


def report(args: argparse.Namespace) -> int:
    """Write the pages of a run again."""
    from treadle.evals.results.terminal_table import write_summary

    (folder,) = _folders(args, 1, "report takes one run")
    write_reports(folder)
    print(clean(write_summary(folder.rows())), end="")
    print(f"wrote {folder.path / 'report.html'}", file=sys.stderr)
    return command.OK


def promote(args: argparse.Namespace) -> int:
    """Turn a sample into an offline scenario, and play it once."""
    from treadle.evals.offline_runner import play
    from treadle.evals.results.promote_sample import promote as promoted
    from treadle.evals.scenario_file import read_scenario

    folder, key = _sample(args)
    row = next((row for row in folder.rows() if row.key == key), None)
    if row is None:
        keys = [each.key for each in folder.rows() if each.outcome != "pass"][:5]
        raise NotFound(f"{folder.path} has no sample {key!r}", param="sample", hint=f"some: {', '.join(keys)}")
    scenario, evidence = folder.info().by_id.get(row.scenario), folder.evidence(key)
    if scenario is None or evidence is None:
        raise NotFound(f"{key!r} has no transcript", param="sample")
    text = promoted(row, scenario, evidence)
    if args.out is None:
        sys.stdout.write(text)
    else:
        write_text(args.out, text, "out")
    sample = asyncio.run(play(read_scenario(text)))
    if sample.outcome != "pass":
        print(clean(f"treadle: the scenario does not pass as it is: {sample.reason}"), file=sys.stderr)
        return command.ERROR
    return command.OK


def _sample(args: argparse.Namespace) -> "tuple[RunFolder, str]":
    """Find the run and the sample in one word: RUN/SAMPLE, where both may hold slashes."""
    from treadle.evals.results.result_folder import RUN, RunFolder

    if len(args.paths) != 1:
        raise RequestError("treadle eval promote takes RUN/SAMPLE", param="prompt")
    whole = args.paths[0]
    for place in range(len(whole) - 1, 0, -1):
        if whole[place] == "/" and (Path(whole[:place]) / RUN).is_file():
            return RunFolder(Path(whole[:place])), whole[place + 1 :]
    raise ConfigError(f"{whole} names no run", param="sample", hint="RUN/SAMPLE; samples.jsonl has the keys")


def history(args: argparse.Namespace) -> int:
    """Print the trend of a folder of runs."""
    from treadle.evals.results.trend import read_history, write_history

    folder = Path(args.paths[0]) if args.paths else Path(FOLDER)
    points = read_history(folder)
    if args.json:
        command.print_json(points)
    else:
        print(clean(write_history(points)), end="")
    return command.OK


def quirks(args: argparse.Namespace) -> int:
    """Count the quirks of endpoints in recorded streams."""
    from treadle.evals.live.quirk_detection import detect, write_detected

    if not args.paths:
        raise RequestError("name a run, or cassettes", param="prompt", hint="treadle eval quirks eval-runs/RUN")
    found = detect([Path(path) for path in args.paths])
    if args.json:
        command.print_json(found)
    else:
        print(clean(write_detected(found)), end="")
    return command.OK


def export(args: argparse.Namespace) -> int:
    """Write a run as logs of Inspect."""
    from treadle.evals.results.inspect_log import write_logs
    from treadle.evals.results.result_folder import file_name

    (folder,) = _folders(args, 1, "export takes one run")
    out: Path = args.out or folder.path / "inspect"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for arm, log in write_logs(folder.info(), folder.rows(), folder.evidence).items():
            (out / file_name(arm)).write_bytes(log)
            print(out / file_name(arm))
    except OSError as error:
        raise ConfigError(f"can not write {out}: {error.strerror or error}", param="out") from None
    return command.OK
