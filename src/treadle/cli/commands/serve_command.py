"""`treadle serve`: start the gateway and print its addresses."""

import argparse
import asyncio
import gc
import logging
import os
import secrets
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from treadle.cli import command_base as command
from treadle.core.errors import ConfigError
from treadle.journal.store_url import shown_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.config import Settings
    from treadle.runs.views.recorded_rounds import StoredRun
    from treadle.runtime import Runtime
    from treadle.server.server_process import Address
    from treadle.server.workers.control_channel import WorkerAssignment
    from treadle.telemetry import Redactor

log = logging.getLogger("treadle.tools")

GC_THRESHOLDS = (50_000, 20, 1_000)
"""New objects before the young are looked at, and how often that before the older and before all are."""

EPILOG = """\
With no configuration and no key it answers with the demo model and keeps runs in SQLite. Only this machine can
reach it unless --allow-remote says otherwise.

examples:
  treadle serve
  treadle serve --port 9000 --tools my_tools.py --reload
  OPENAI_API_KEY=… treadle serve
  curl http://127.0.0.1:8700/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"demo","messages":[{"role":"user","content":"what is the weather in Paris?"}]}'"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 8700; 0 picks a free one)")
    parser.add_argument("--allow-remote", action="store_true", help="allow a host that other machines can reach")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="how much to log")
    parser.add_argument("--workers", type=int, metavar="N", help="processes that serve the port (default: 1)")
    parser.add_argument("--reload", action="store_true", help="load files of tools again when they change")
    command.add_model_flag(parser)
    command.add_record_flag(parser)
    command.add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped."""
    from treadle.config.cross_checks import check_model
    from treadle.server.workers.control_channel import read_assignment

    settings = command.read_flags(args).settings
    check_model(settings)
    check_addresses(settings)
    post = read_assignment(os.environ)
    if post is None and settings.server.workers > 1:
        return _serve_workers(settings, args)
    if sys.platform == "win32":
        from asyncio import run as run_loop
    else:
        from uvloop import run as run_loop
    run_loop(_serve(settings, post, is_reloading=args.reload))
    return command.OK


def _serve_workers(settings: "Settings", args: argparse.Namespace) -> int:
    """Open the port and let workers serve it until stopped.

    Raises: ConfigError.
    """
    if sys.platform == "win32":
        raise ConfigError("several workers need a Unix", param="server.workers", hint="start one, on Linux or macOS")
    from treadle.server.auth.installation_secret import is_shared
    from treadle.server.server_process import BACKLOG, bind
    from treadle.server.workers.worker_supervisor import WorkerSupervisor
    from treadle.telemetry import Redactor

    _log_to_stderr(settings.server.log_level, Redactor())
    secret = "" if is_shared(settings, os.environ) else secrets.token_hex(32)
    with bind(settings.server) as listener:
        listener.listen(BACKLOG)
        words = [sys.executable, "-m", "treadle.cli.main", *args.command_line]
        return WorkerSupervisor(words, settings.server.workers, listener, secret=secret).run()


def check_addresses(settings: "Settings") -> None:
    """Refuse an upstream that is this gateway: a variable that points clients here may be set in this shell too.

    Raises: ConfigError.
    """
    from treadle.config.cross_checks import is_loopback

    for upstream in settings.upstream:
        address = urlsplit(upstream.base_url)
        if is_loopback(address.hostname or "") and address.port == settings.server.port:
            raise ConfigError(
                f"upstream {upstream.name!r} is this gateway itself: {upstream.base_url}",
                param="upstream",
                hint="unset the variable that points clients here (OPENAI_BASE_URL …), or take another --port",
            )
    for server in settings.mcp:
        address = urlsplit(server.url)
        if server.url and is_loopback(address.hostname or "") and address.port == settings.server.port:
            raise ConfigError(f"MCP server {server.name!r} is this gateway itself: {server.url}", param="mcp")


async def _serve(settings: "Settings", post: "WorkerAssignment | None" = None, *, is_reloading: bool = False) -> None:
    from treadle.runtime import Parts, Runtime
    from treadle.server.server_process import serve

    parts = Parts() if post is None else Parts(owner=post.owner, workers=post.count)
    async with Runtime(settings, parts=parts) as runtime:
        _log_to_stderr(settings.server.log_level, runtime.redactor)

        def announce(address: "Address") -> None:
            if post is not None and not post.is_announcing:
                return
            for line in greeting(runtime, address.url, address.login):
                print(line, flush=True)

        _collect_rarely()
        watch = asyncio.create_task(runtime.watch_tools(tell_reload)) if is_reloading else None
        try:
            await serve(runtime, announce, write_scenario=_scenario, post=post)
        finally:
            if watch is not None:
                watch.cancel()


def _collect_rarely() -> None:
    """Collect garbage rarely, and never scan the objects that were created at startup. With ten thousand open streams
    a full collection takes seconds, during which no event is read."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _scenario(runs: "Sequence[StoredRun]") -> str:
    """Write runs as a scenario, as `treadle export --scenario` does."""
    from treadle.evals.scenario_from_run import scenario_of, write_scenario

    return write_scenario(scenario_of(runs))


def tell_reload(place: str, outcome: "list[str] | ConfigError") -> None:
    """Log that tools were reloaded, or why they could not be and the old ones stay."""
    if isinstance(outcome, ConfigError):
        log.error("tools not reloaded, the old ones stay: %s", outcome.message)
    else:
        log.info("tools reloaded from %s: %s", place, ", ".join(outcome))


def greeting(runtime: "Runtime", url: str, login: str = "") -> list[str]:
    """Return the lines that show the addresses and what answers there."""
    from treadle.server.auth.authentication import asks_for_key

    settings = runtime.settings
    upstreams = ", ".join(upstream.name for upstream in settings.upstream)
    tools = ", ".join(tool.name for tool in runtime.registry.tools())
    is_kept = settings.store.persistence == "on"
    return [
        f"Treadle is at {url}/",
        *([f"  log in   {url}{login} (once, to approve and decide; `treadle login` makes another)"] if login else []),
        f"  console  {url}/console",
        f"  OpenAI   {url}/v1 (Chat Completions and Responses)",
        f"  others   {url} (Anthropic Messages and Gemini)",
        f"  models   {upstreams or 'the demo model (a key such as OPENAI_API_KEY brings a real one)'}",
        f"  tools    {tools or 'none'}",
        *(["  keys     needed: `treadle keys create NAME` makes one"] if asks_for_key(settings) else []),
        f"  journal  {shown_url(settings.store.url) if is_kept else 'off'}",
        *([f"  workers  {settings.server.workers} processes on this port"] if settings.server.workers > 1 else []),
        *([f"  records  every upstream call, into {settings.record}"] if settings.record else []),
        "Ctrl-C stops it.",
    ]


def _log_to_stderr(level: str, redactor: "Redactor") -> None:
    """Log for a person on a terminal, and as JSON lines for everything else."""
    from treadle.telemetry import BatchedLogHandler, JsonLines

    logger = logging.getLogger("treadle")
    logger.addHandler(
        BatchedLogHandler(sys.stderr, StartupLines(redactor) if sys.stderr.isatty() else JsonLines(redactor))
    )
    logger.setLevel(level.upper())
    logger.propagate = False
    # No line names the thread, process or source line, so logging need not look them up for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateUsage]


class StartupLines(logging.Formatter):
    """One short line a record, harmless for the terminal."""

    def __init__(self, redactor: "Redactor") -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Write one record, with the run that it is about."""
        from treadle.terminal.rendering.sanitize import clean

        run_id = vars(record).get("run_id")
        line = super().format(record)
        return clean(self._redactor.text(f"{line} [{run_id}]" if run_id else line))
