"""`python -m bench [names]`: measures what Treadle costs, one measurement after the other, each bounded in time.

Only ratios within one run mean anything: everything that is compared is measured in turns, in the same minutes, on the
same core. `--peers` measures it beside the gateways and loops that people would pick instead.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from bench.report import document
from bench.rig.processes import ROOT, hurry


class Measurement(NamedTuple):
    """A command of its own, and the seconds after which it is ended."""

    module: str
    bound_s: float
    has_peers: bool = False


SUITE = {
    "plain": Measurement("bench.measures.plain", 300, True),
    "streams": Measurement("bench.measures.streams", 300, True),
    "tls": Measurement("bench.measures.tls", 180),
    "rounds": Measurement("bench.measures.rounds", 180),
    "loops": Measurement("bench.measures.loops", 300, True),
    "memory": Measurement("bench.measures.memory", 180, True),
    "start": Measurement("bench.measures.start", 180, True),
    "codecs": Measurement("bench.measures.codecs", 120),
    "growth": Measurement("bench.measures.growth", 400),
    "load": Measurement("bench.load", 300),
    "journal": Measurement("bench.journal", 180),
    "dialects": Measurement("bench.dialects", 120),
    "guests": Measurement("bench.guests", 120),
    "tools": Measurement("bench.tools", 180),
    "pages": Measurement("bench.pages", 300),
    "terminal": Measurement("bench.terminal", 300),
}
PEERS_FACTOR = 6
"""Peers are slower, and may have to be installed first."""
END_S = 30.0


def run(name: str, flags: list[str]) -> bool:
    """Run one measurement and say whether it came to its end."""
    each = SUITE[name]
    flags = [flag for flag in flags if flag != "--peers" or each.has_peers]
    bound_s = each.bound_s * (PEERS_FACTOR if "--peers" in flags else 1)
    began = time.monotonic()
    print(f"\n=== {name} ===", flush=True)
    command = [sys.executable, "-m", each.module, *flags]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, process_group=0)
    try:
        code = child.wait(bound_s)
    except subprocess.TimeoutExpired:
        print(f"{name}: not done after {bound_s:.0f} s, ended")
        return False
    finally:
        end(child)
    if code:
        print(f"{name}: failed with {code}")
        return False
    print(f"({name}: {time.monotonic() - began:.0f} s)", flush=True)
    return True


def end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a measurement, so that it ends what it started, and make sure of it."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(SUITE)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that it works")
    parser.add_argument("--peers", action="store_true", help="beside the peers; installs them once, outside the tree")
    parser.add_argument("--urgent", action="store_true", help="before everything else on a shared machine (as root)")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/performance.md afterwards")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in SUITE]
    if unknown:
        parser.error(f"there is no measurement {unknown[0]!r}; there are {', '.join(SUITE)}")
    names = args.names or [name for name, each in SUITE.items() if each.has_peers or not args.peers]
    if args.urgent:
        hurry()
    flags = [f"--{flag}" for flag in ("quick", "peers") if getattr(args, flag)]
    failed = [name for name in names if not run(name, flags)]
    if args.write:
        document.main()
    if failed:
        sys.exit(f"bench: without figures: {', '.join(failed)}")


if __name__ == "__main__":
    main()
