"""The wheel in clean environments: on each Python, with and without each extra, and the whole gateway out of it."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from clients.cache import NotInstalled
from package.pythons import COMMAND_S, Env, install_quickly, pythons

EXTRAS: dict[str, tuple[str, ...]] = {
    "postgres": ("asyncpg",),
    "wasm": ("wasmtime",),
    "mcp": ("mcp",),
    "search": (),
    "outline": ("tree_sitter_python", "tree_sitter_rust", "tree_sitter_typescript"),
    "redis": ("redis",),
    "temporal": ("temporalio",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
}
"""What a user may add, and the modules that come with it."""

MISSING: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "postgres": (("run", "hello"), {"TREADLE_STORE__URL": "postgresql://nobody@127.0.0.1:9/none"}),
    "wasm": (("wasm", "check", "hello.wat"), {}),
    "mcp": (("mcp",), {}),
    "redis": (("run", "hello"), {"TREADLE_RATES__URL": "redis://127.0.0.1:9/0"}),
}
"""Commands that need an extra, and what makes them need it."""

PACKAGES_MAX = 15
FIND = (
    "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n.split('.')[0]) is None])"
)


@pytest.mark.parametrize("version", sorted(pythons()))
def test_it_installs_and_answers_on_every_python(version: str, tmp_path: Path, wheel: Path) -> None:
    """What is installed fits together, and one question is answered through a tool."""
    try:
        env = install_quickly(pythons()[version], tmp_path, wheel)
    except NotInstalled as reason:
        pytest.skip(f"{version}: {reason}")
    done = env.run("treadle", "run", "What is the weather in Paris?")
    assert (done.returncode, "Paris" in done.stdout) == (0, True), done.stderr
    assert env.run("treadle", "--version").stdout.startswith("treadle ")
    assert env.run("python", "-W", "error", "-c", "from treadle import *").returncode == 0


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_it_names(extra: str, tmp_path: Path, wheel: Path) -> None:
    """Its modules are there, everything fits together, and the command that needs it no longer asks for it."""
    try:
        env = install_quickly(next(iter(pythons().values())), tmp_path, wheel, extra)
    except NotInstalled as reason:
        pytest.skip(f"{extra}: {reason}")
    assert env.run("python", "-c", FIND, *EXTRAS[extra]).stdout.strip() == "[]"
    if extra in MISSING:
        assert f"treadle[{extra}]" not in _said(env, extra)


def test_without_extras_none_of_them_is_there(plain: Env) -> None:
    """Otherwise the tests above would show nothing."""
    modules = sorted({name for names in EXTRAS.values() for name in names})
    assert eval(plain.run("python", "-c", FIND, *modules).stdout) == modules  # noqa: S307 our own list


def test_the_base_install_is_small(plain: Env) -> None:
    """At most fifteen packages beside Treadle and what makes the environment."""
    code = "from importlib.metadata import distributions; print(*sorted({d.metadata['name'] for d in distributions()}))"
    there = set(plain.run("python", "-c", code).stdout.split()) - {"treadle", "pip", "setuptools"}
    assert 0 < len(there) <= PACKAGES_MAX, sorted(there)


@pytest.mark.parametrize("extra", MISSING)
def test_a_missing_extra_is_named_with_the_command_that_brings_it(extra: str, plain: Env) -> None:
    """Whoever needs it reads what to install, and no traceback."""
    said = _said(plain, extra)
    assert f"treadle[{extra}]" in said
    assert "Traceback" not in said


def _said(env: Env, extra: str) -> str:
    arguments, variables = MISSING[extra]
    if extra == "wasm":
        env.run("treadle", "wasm", "new", "hello.wat")
    done = env.run("treadle", *arguments, **variables)
    return done.stdout + done.stderr


@pytest.fixture
def address(plain: Env) -> Iterator[str]:
    """Serve out of the installed wheel."""
    with subprocess.Popen(
        [plain.bin / "treadle", "serve", "--port", "0"],
        cwd=plain.folder,
        env=plain.variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1].rstrip("/")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=COMMAND_S)


def test_the_gateway_and_its_pages_are_served_out_of_the_wheel(address: str) -> None:
    """The pages and all that they load, the description of the API, an answer by a tool, and its run in the journal."""
    for page in ("/", "/console"):
        html = _get(address + page)
        loaded = re.findall(r'(?:src|href)="(/web/[^"]+)"', html)
        assert loaded, page
        assert all(_get(address + file) for file in loaded)
    assert json.loads(_get(f"{address}/openapi.json"))["paths"]
    question = {"model": "demo", "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
    request = Request(
        f"{address}/v1/chat/completions", json.dumps(question).encode(), {"content-type": "application/json"}
    )
    with urlopen(request, timeout=COMMAND_S) as answer:
        assert "Paris" in json.load(answer)["choices"][0]["message"]["content"]
    assert json.loads(_get(f"{address}/treadle/v1/runs"))["runs"][0]["status"] == "completed"


def _get(url: str) -> str:
    with urlopen(url, timeout=COMMAND_S) as answer:
        return answer.read().decode()


def test_scenarios_and_the_kit_of_guests_are_in_the_wheel(plain: Env) -> None:
    """The evaluations play, and the first guests are written, without a checkout."""
    played = plain.run("treadle", "eval", "--scenarios", "select.one*", "--protocols", "chat")
    assert (played.returncode, "passed" in played.stdout) == (0, True), played.stdout + played.stderr
    for name in ("first.c", "first.ts", "first.wat", "first.js", "first.py"):
        done = plain.run("treadle", "wasm", "new", name)
        assert (done.returncode, (plain.folder / "work" / name).exists()) == (0, True), done.stderr
