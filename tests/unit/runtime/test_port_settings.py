"""What belongs to an installation, by its settings: ports that no tool may reach, files that no guest is granted."""

from pathlib import Path

import pytest

from treadle.config import ServerSection, Settings, StoreSection
from treadle.config.access_settings import RatesSection
from treadle.config.runner_settings import RunnerSection
from treadle.config.settings import Guest
from treadle.core.errors import ConfigError
from treadle.runtime.port_settings import make_own_ports
from treadle.runtime.toolset import guest_modules


@pytest.mark.parametrize(
    ("url", "ports"),
    [
        ("postgresql://db/treadle", {5433}),
        ("postgresql://u:p%40w@db:6000/treadle", {6000}),
        ("postgresql://a:1,b:2,c/treadle", {1, 2, 5433}),
        ("postgresql://[::1]:7000/treadle", {7000}),
        ("postgresql:///treadle?host=/run&port=7001,7002", {5433, 7001, 7002}),
        ("sqlite:////tmp/treadle.db", set[int]()),
    ],
)
def test_the_ports_of_the_journal_are_those_of_its_address(url: str, ports: set[int], tmp_path: Path) -> None:
    """As PostgreSQL's own programs read it, with the port of the environment where there is none."""
    settings = Settings(store=StoreSection(url=url), server=ServerSection(port=9001))
    made = make_own_ports(settings, {"XDG_DATA_HOME": str(tmp_path), "PGPORT": "5433"})
    assert made.closed() == {9001, *ports}


def test_counters_and_temporal_are_closed_too(tmp_path: Path) -> None:
    """Where the settings name them."""
    rates = RatesSection(url="redis://:word@counter/0")
    runner = RunnerSection(kind="temporal", temporal="flow:7234")
    made = make_own_ports(Settings(rates=rates, runner=runner), {"XDG_DATA_HOME": str(tmp_path)})
    assert made.closed() == {8700, 6379, 7234}


@pytest.mark.parametrize("granted", [".", "data", "data/treadle", "data/treadle/guests"])
def test_a_guest_is_granted_no_folder_of_treadles_own(tmp_path: Path, granted: str) -> None:
    """Neither one around it nor one within; a folder beside it is granted."""
    env = {"XDG_DATA_HOME": str(tmp_path / "data")}
    for name in ("data/treadle/guests", "beside"):
        (tmp_path / name).mkdir(parents=True)
    store = StoreSection(url=f"sqlite:///{tmp_path}/data/treadle/treadle.db")

    def made(folder: str) -> Settings:
        guest = Guest(name="g", path="g.wasm", kind="tools", wasi_read=(f"{tmp_path / folder}:/in",))
        return Settings(store=store, guest=(guest,))

    with pytest.raises(ConfigError, match="Treadle's own") as caught:
        guest_modules(made(granted), env)
    assert caught.value.param == "wasi_read"
    assert guest_modules(made("beside"), env)
