"""A store with a few runs in it, made by the real runtime with scripted models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treadle import tool
from treadle.config import Settings, StoreSection
from treadle.protocols.protocol_registry import ProtocolName
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.tools import Tool


@tool(effect="read")
def get_price(article: str) -> float:
    """Tell a price.

    Args:
        article: Its number.
    """
    return 12.5


PRICE = ReplyCall(name="get_price", args={"article": "A7"})
TURNS = (ScriptTurn(text="Let me see.", calls=(PRICE,)), ScriptTurn(text="It costs 12.5 €."))


def settings_in(folder: Path, **sections: Any) -> Settings:
    """Settings with a store in a folder."""
    return Settings(store=StoreSection(url=f"sqlite:///{folder}/treadle.db"), default_model="script", **sections)


async def run_script(
    folder: Path,
    *turns: ScriptTurn,
    prompts: Sequence[str] = ("What is A7?",),
    tools: Sequence[Tool] = (get_price,),
    session: str | None = None,
    protocol: ProtocolName = "chat",
    **sections: Any,
) -> list[str]:
    """Run the prompts one after the other and return the ids of their runs."""
    model = ScriptedModel(Script(turns=turns or TURNS), ids=RandomIds(), protocol=protocol)
    settings = settings_in(folder, **sections)
    async with Runtime(settings, tools=tools, model=model, parts=Parts(env={})) as runtime:
        for prompt in prompts:
            async for _ in runtime.run(prompt, session=session):
                pass
        rows = await runtime.store.list_runs(limit=len(prompts))
    return [row.id for row in reversed(rows)]
