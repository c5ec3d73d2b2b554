"""Applications for the routes: a journal of the test's own, and a model that does what the test says."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle.config import ServerSection, Settings, StoreSection
from treadle.engine.ports import Model
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.server.app import App

OpenApp = Callable[..., AbstractAsyncContextManager[App]]


@pytest.fixture
def open_app(tmp_path: Path) -> OpenApp:
    """Open an application; `model` answers everything, without one it is the demo model."""

    @asynccontextmanager
    async def opened(
        model: Model | None = None, server: ServerSection | None = None, **sections: Any
    ) -> AsyncIterator[App]:
        store = StoreSection(url=f"sqlite:///{tmp_path}/treadle.db")
        settings = Settings(store=store, server=server or ServerSection(), **sections)
        async with Runtime(settings, model=model, parts=Parts(env={}, demo_delay_s=0.0)) as runtime:
            yield App(runtime)

    return opened


@pytest.fixture
async def app(open_app: OpenApp) -> AsyncIterator[App]:
    """An application on the demo model."""
    async with open_app() as opened:
        yield opened


def scripted(*turns: ScriptTurn) -> ScriptedModel:
    """Return a model that says these turns."""
    return ScriptedModel(Script(turns=turns), ids=RandomIds())
