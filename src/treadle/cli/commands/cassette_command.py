"""`treadle cassette`: export a stored run as a cassette that plays without its upstream, or as an eval scenario."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.cli.commands.export_command import written
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.journal.journal_interface import RunRow, Store
    from treadle.protocols.protocol_registry import ProtocolName
    from treadle.providers.provider_endpoint import Endpoint

EPILOG = """\
A cassette holds the requests of the run and the replies, spelled in the protocol of its upstream. To play it:
  [[upstream]]
  name = "openai"
  base_url = "cassette:run.jsonl"
`treadle serve --record DIR` records what the network really carried. `last` is the newest run.

examples:
  treadle cassette last -o run.jsonl
  treadle cassette RUN --protocol messages -o run.jsonl
  treadle cassette RUN --as scenario -o my_scenarios/weather.toml"""

NAME = "recorded"
"""What the upstream of a run is called that had none, such as one with the demo model."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from treadle.protocols.protocol_registry import PROTOCOL_NAMES

    parser.epilog = EPILOG
    parser.add_argument("run", metavar="RUN", help="the id of a run or response, or `last`")
    parser.add_argument("--as", dest="form", choices=("cassette", "scenario"), default="cassette", help="what to make")
    parser.add_argument(
        "--protocol",
        choices=PROTOCOL_NAMES,
        help="spell it in this protocol (default: that of the upstream that serves the model now, else chat)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here instead of standard output")
    command.add_store_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Write the cassette or the scenario."""
    if args.form == "scenario":
        return opened.with_store(args, lambda store: export_scenario(store, args.run, args.output))
    settings = command.read_flags(args).settings
    return opened.with_store(args, lambda store: _export_cassette(store, settings, args))


async def _export_cassette(store: "Store", settings: "Settings", args: argparse.Namespace) -> int:
    from treadle.providers.cassettes.file_format import write_cassette
    from treadle.runs.replay.cassette_export import export_run
    from treadle.runs.views.recorded_rounds import read_run

    row = await opened.find_run(store, args.run)
    endpoint, model = endpoint_of(settings, row, args.protocol)
    taped = export_run(await read_run(store, row), endpoint, model)
    with written(args.output) as out:
        out.write(write_cassette(taped.cassette))
    for note in taped.notes:
        print(clean(f"treadle: {note}"), file=sys.stderr)
    if args.output is not None:
        count = plural(len(taped.cassette.calls), "model call")
        print(f'{count} in {args.output}; play it as upstream "{endpoint.name}"', file=sys.stderr)
    return command.OK


def endpoint_of(settings: "Settings", row: "RunRow", protocol: str | None) -> "tuple[Endpoint, str]":
    """Return the endpoint that serves the run's model now and what it calls the model; else one that stands for it."""
    import msgspec

    from treadle.config import ToolsSection
    from treadle.core.errors import NotFound
    from treadle.protocols.protocol_registry import CHAT
    from treadle.providers.provider_endpoint import Endpoint
    from treadle.providers.resilience import GuardedModel
    from treadle.runtime import Runtime

    alone = msgspec.structs.replace(settings, tools=ToolsSection(demo=False), record="")
    try:
        found = Runtime(alone).router.model_for(row.model)
    except NotFound:
        found = None
    if isinstance(found, GuardedModel) and protocol in (None, found.first.endpoint.protocol):
        return found.first.endpoint, found.first.name
    spoken = cast("ProtocolName", protocol or CHAT)
    return Endpoint(name=NAME, base_url="http://recorded.invalid/v1", protocol=spoken), ""


async def export_scenario(store: "Store", name: str, output: Path | None) -> int:
    """Write a run as a scenario and play it once; print failed expectations and return exit code 1 if there are any."""
    from treadle.evals.offline_runner import play
    from treadle.evals.scenario_file import read_scenario
    from treadle.evals.scenario_from_run import scenario_of, write_scenario
    from treadle.journal.session_operations import chain_of
    from treadle.runs.views.recorded_rounds import read_run

    row = await opened.find_run(store, name)
    runs = [await read_run(store, each) for each in reversed(await chain_of(store, row.id))]
    text = write_scenario(scenario_of(runs))
    with written(output) as out:
        out.write(text.encode())
    sample = await play(read_scenario(text))
    problems = [f"{each.grader}: {each.reason}" for each in sample.verdicts if not each.passed]
    problems += [sample.broken] if sample.broken else []
    for problem in problems:
        print(clean(f"treadle: the scenario does not pass as it is: {problem}"), file=sys.stderr)
    if output is not None and not problems:
        print(f"{output} passes; treadle eval {output} plays it", file=sys.stderr)
    return command.ERROR if problems else command.OK
