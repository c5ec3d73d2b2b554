"""What the machine offers: too old, too little, and not installed are each said with what to do."""

import sys
from importlib import metadata

import pytest

from treadle.cli.doctor import machine_checks as machine
from treadle.cli.doctor.machine_checks import check_extras, check_files, check_kernel, check_packages, check_python
from treadle.config import Mcp, ServerSection, Settings, StoreSection
from treadle.config.access_settings import RatesSection
from treadle.config.settings import Guest
from treadle.config.telemetry_settings import TelemetrySection


def absent(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let packages be missing."""
    real = metadata.version

    def version(name: str) -> str:
        if name in names:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)


def test_an_old_python_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which one is needed."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    found = check_python()
    assert (found.state, "3.11" in found.advice) == ("broken", True)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings it."""
    absent(monkeypatch, "msgspec")
    found = check_packages()
    assert (found.state, found.detail, found.advice) == ("broken", "missing: msgspec", "pip install msgspec")


@pytest.mark.parametrize(
    ("settings", "package", "detail", "advice"),
    [
        (Settings(store=StoreSection(url="postgresql://a/b")), "asyncpg", "store.url needs asyncpg", "postgres"),
        (Settings(rates=RatesSection(url="redis://a")), "redis", "rates.url needs redis", "redis"),
        (Settings(mcp=(Mcp(name="a", command=("x",)),)), "mcp", "mcp needs mcp", "mcp"),
        (Settings(server=ServerSection(mcp=True)), "mcp", "server.mcp needs mcp", "mcp"),
        (Settings(guest=(Guest(name="a", path="a.wasm"),)), "wasmtime", "guest needs wasmtime", "wasm"),
        (
            Settings(telemetry=TelemetrySection(spans=True)),
            "opentelemetry-sdk",
            "telemetry.spans needs opentelemetry-sdk",
            "otel",
        ),
    ],
)
def test_an_extra_that_a_setting_asks_for_must_be_there(
    settings: Settings, package: str, detail: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key, what it needs, and the words for pip; without the key the same lack is nothing."""
    absent(monkeypatch, package, *(machine.OTEL if advice == "otel" else ()))
    found = check_extras(settings)
    assert (found.state, found.detail.startswith(detail)) == ("broken", True)
    assert found.advice == f"pip install 'treadle[{advice}]'"
    assert check_extras(Settings()).state == "ok"


def test_an_old_kernel_is_worth_knowing(monkeypatch: pytest.MonkeyPatch) -> None:
    """File tools still work; the release that would be better is named."""
    monkeypatch.setattr(machine, "has_syscall", lambda number: False)
    monkeypatch.setattr("platform.release", lambda: "4.19.0-27-amd64")
    found = check_kernel()
    assert (found.state, found.detail.split()[0]) == ("note", "4.19.0-27-amd64")
    assert "Linux 5.6" in found.advice


@pytest.mark.parametrize(("soft", "hard", "state"), [(1_024, 524_288, "note"), (65_536, 65_536, "ok"), (-1, -1, "ok")])
def test_few_open_files_are_worth_knowing(soft: int, hard: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of many systems is too low for a gateway; what to type is said."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    found = check_files()
    assert found.state == state
    assert ("ulimit -n 4096" in found.advice) == (state == "note")
