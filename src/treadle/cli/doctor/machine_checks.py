"""Checks of the machine: Python, packages, kernel, sandbox, and the limit of open files."""

import ctypes
import platform
import re
import sys
from importlib import metadata

import msgspec

from treadle.cli.doctor.check_result import Check
from treadle.config import Settings
from treadle.journal.store_url import is_postgres

PYTHON_MIN = (3, 11)
FILES_WANTED = 4_096
"""A connection of a client is a file, and so is one to an upstream."""

SANDBOX_WANTED = 2
OTEL = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
OPENAT2 = 437
_OPENAT2_SINCE = "5.6"


class OptionalPackage(msgspec.Struct, frozen=True, kw_only=True):
    """An extra of the package, what it brings, and the setting that asks for it here; empty where none does."""

    name: str
    packages: tuple[str, ...]
    wanted_by: str


def check_python() -> Check:
    """Check the Python version."""
    version = platform.python_version()
    if sys.version_info[:2] < PYTHON_MIN:
        advice = "install Python 3.11 or newer, and Treadle into an environment of it"
        return Check(name="python", state="broken", detail=version, advice=advice)
    return Check(name="python", state="ok", detail=f"{version} on {platform.system()} {platform.machine()}")


def check_packages() -> Check:
    """Check whether what the base install needs is there."""
    try:
        wanted = metadata.requires("treadle") or []
    except metadata.PackageNotFoundError:
        return Check(name="packages", state="broken", detail="treadle is not installed", advice="pip install treadle")
    names = [_requirement_name(line) for line in wanted if "extra ==" not in line]
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        advice = f"pip install {' '.join(missing)}"
        return Check(name="packages", state="broken", detail=f"missing: {', '.join(missing)}", advice=advice)
    return Check(name="packages", state="ok", detail=f"treadle {metadata.version('treadle')}, {len(names)} packages")


def list_extras(settings: Settings) -> list[OptionalPackage]:
    """Return the extras that settings may ask for."""
    has_mcp = "mcp" if settings.mcp else "server.mcp" if settings.server.mcp else ""
    table = (
        ("postgres", ("asyncpg",), "store.url" if is_postgres(settings.store.url) else ""),
        ("redis", ("redis",), "rates.url" if settings.rates.url else ""),
        ("mcp", ("mcp",), has_mcp),
        ("wasm", ("wasmtime",), "guest" if settings.guest else ""),
        ("otel", OTEL, "telemetry.spans" if settings.telemetry.spans else ""),
        ("temporal", ("temporalio",), "runner.kind" if settings.runner.kind == "temporal" else ""),
    )
    return [OptionalPackage(name=name, packages=packages, wanted_by=wanted_by) for name, packages, wanted_by in table]


def check_extras(settings: Settings) -> Check:
    """Check whether the extras that the settings ask for are installed."""
    extras = list_extras(settings)
    missing = {each.name: [name for name in each.packages if not _is_installed(name)] for each in extras}
    lacking = [each for each in extras if each.wanted_by and missing[each.name]]
    if lacking:
        detail = "; ".join(f"{each.wanted_by} needs {' and '.join(missing[each.name])}" for each in lacking)
        advice = f"pip install 'treadle[{','.join(each.name for each in lacking)}]'"
        return Check(name="extras", state="broken", detail=detail, advice=advice)
    there = [each.name for each in extras if not missing[each.name]]
    absent = [each.name for each in extras if missing[each.name]]
    rest = f" (not installed, not needed: {', '.join(absent)})" if absent else ""
    return Check(name="extras", state="ok", detail=f"{', '.join(there) or 'none'}{rest}")


def check_kernel() -> Check:
    """Check whether the kernel can confine the file tools by itself."""
    release = platform.release()
    if has_syscall(OPENAT2):
        return Check(name="kernel", state="ok", detail=f"{release} keeps file tools inside their folder (openat2)")
    detail = f"{release} has no openat2: file tools walk each path without following links"
    advice = f"Linux {_OPENAT2_SINCE} or newer has it; from 5.13 on commands are confined too (Landlock)"
    return Check(name="kernel", state="note", detail=detail, advice=advice)


def check_sandbox() -> Check:
    """Find the sandbox level of this machine; a child process really attempts what each level forbids."""
    from treadle.tools.sandbox import describe, find_level, shortfalls

    found = find_level()
    state = "ok" if found.level >= SANDBOX_WANTED else "note"
    return Check(name="sandbox", state=state, detail=describe(found), advice="\n".join(shortfalls(found)))


def check_read_only() -> Check:
    """Check whether a command can run without any way to change something, so that it need not be asked about."""
    from treadle.tools.sandbox import can_read_only, describe_read_only, find_level

    found = find_level()
    detail = describe_read_only(found)
    if can_read_only(found):
        return Check(name="readonly", state="ok", detail=detail)
    advice = "Linux 5.13 or newer with Landlock and seccomp lets commands that only read run unasked"
    return Check(name="readonly", state="note", detail=detail, advice=advice)


def check_isolation() -> Check:
    """Check whether programs of tools can be isolated from Treadle's own ports, journal and processes."""
    from treadle.tools.sandbox import find_level, hiding_gaps, network_gap

    found = find_level()
    gap = network_gap(found.level, found.abi)
    refused = "" if gap is None else f"a command gets no network (tools.local.network): {gap}"
    gaps = [*([refused] if refused else []), *(f"an untrusted MCP server on stdio: {each}" for each in hiding_gaps())]
    if not gaps:
        detail = "commands with a network and untrusted MCP servers reach neither Treadle's ports nor its journal"
        return Check(name="isolated", state="ok", detail=detail)
    detail = "not everything that a tool starts can be kept from Treadle's ports and journal here"
    return Check(name="isolated", state="note", detail=detail, advice="\n".join(gaps))


def check_files() -> Check:
    """Check how many files and connections the process may open."""
    try:
        import resource
    except ImportError:
        return Check(name="files", state="ok", detail="this system sets no bound on open files")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES_WANTED:
        return Check(name="files", state="ok", detail=f"{_count(soft)} may be open at once")
    detail = f"only {soft} may be open at once; every client and every upstream call is one"
    can = f"ulimit -n {FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)}"
    return Check(name="files", state="note", detail=detail, advice=f"{can}, or LimitNOFILE= in the systemd unit")


def has_syscall(number: int) -> bool:
    """Return whether the kernel knows a call, by calling it with nothing sensible: it complains of the arguments."""
    return sys.platform == "linux" and _syscall(number, -1, None, None, 0) == -1 and ctypes.get_errno() not in (0, 38)


def _syscall(number: int, *arguments: int | None) -> int:
    if sys.platform != "linux":
        return -1
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))


def _count(number: int) -> str:
    return "any number of files" if number < 0 else f"{number} files"


def _requirement_name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", line)
    return found[0] if found else line


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
