"""Which runner the settings choose, and what is said where it cannot be had."""

import socket
import sys

import pytest

from treadle.config import Settings, StoreSection
from treadle.config.runner_settings import RunnerSection
from treadle.core.errors import ConfigError
from treadle.runs.runners.runner_interface import PlacementFailed
from treadle.runs.runners.store_runners import LocalRunner, SharedStoreRunner
from treadle.runtime.store_and_limits import make_runner

POSTGRES = StoreSection(url="postgresql://treadle@/db")
SQLITE = StoreSection(url="sqlite:///t.db")


@pytest.mark.parametrize(
    ("store", "kind", "workers", "wanted"),
    [
        (SQLITE, "auto", 1, LocalRunner),
        (SQLITE, "auto", 2, SharedStoreRunner),
        (POSTGRES, "auto", 1, SharedStoreRunner),
        (POSTGRES, "process", 4, LocalRunner),
        (SQLITE, "claims", 1, SharedStoreRunner),
        (StoreSection(persistence="off"), "claims", 1, LocalRunner),
    ],
)
def test_the_store_and_the_workers_decide_unless_somebody_does(
    store: StoreSection, kind: str, workers: int, wanted: type
) -> None:
    """One process alone needs no queue; several do, and so do replicas."""
    settings = Settings(store=store, runner=RunnerSection(kind=kind))
    assert type(make_runner(settings, {}, workers)) is wanted


def test_the_bound_of_a_process_is_that_of_the_settings() -> None:
    """What is left of it is the room; without one there is always some."""
    bounded = make_runner(Settings(store=POSTGRES, runner=RunnerSection(background_max=3)), {})
    assert [bounded.capacity(driven) for driven in (0, 2, 3, 9)] == [3, 1, 0, 0]
    assert make_runner(Settings(store=POSTGRES), {}).capacity(1_000) is None


def test_a_missing_library_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: nobody has it by accident."""
    monkeypatch.setitem(sys.modules, "treadle.runs.runners.temporal_runner", None)
    with pytest.raises(ConfigError) as caught:
        make_runner(Settings(runner=RunnerSection(kind="temporal")), {})
    assert (caught.value.param, caught.value.hint) == ("runner.kind", "pip install 'treadle[temporal]'")


def test_a_key_that_is_not_set_is_said_by_the_name_of_its_variable() -> None:
    """Before anybody is asked without it."""
    pytest.importorskip("temporalio", reason="the extra temporal is not installed")
    with pytest.raises(ConfigError, match="MY_KEY") as caught:
        make_runner(Settings(runner=RunnerSection(kind="temporal", key_env="MY_KEY")), {})
    assert caught.value.param == "runner.key_env"


async def test_a_temporal_that_is_not_there_is_said_with_its_address() -> None:
    """A server that cannot reach it does not start; a run cannot be placed there."""
    pytest.importorskip("temporalio", reason="the extra temporal is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    runner = make_runner(Settings(runner=RunnerSection(kind="temporal", temporal=address)), {})
    with pytest.raises(PlacementFailed):
        await runner.place("run_1")
    with pytest.raises(ConfigError, match=address) as caught:
        await runner.open(None)  # type: ignore[arg-type]
    assert caught.value.param == "runner.temporal"
    await runner.close()
