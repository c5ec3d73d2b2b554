"""Finds the tools whose untrusted output is in a conversation, although the run does not offer them. Pure.

The run's state tracks the tools that it offers itself.
"""

from collections.abc import Mapping, Sequence

from treadle.core.items import AnyItem, CallItem, ResultItem
from treadle.core.tool_definitions import Offer, ServerTool
from treadle.engine.approval_reasons import NEVER_READ


def tainted_before(
    history: Sequence[AnyItem], offers: Mapping[str, Offer], tools: Sequence[ServerTool]
) -> dict[str, str]:
    """Return the names and sources of such tools; `tools` are all current ones, offered or not.

    A tool that no longer exists counts as untrusted, with an empty source.
    """
    run_here = {item.call_id: item for item in history if type(item) is CallItem and item.side == "server"}
    if not run_here:
        return {}
    known = {tool.name: tool for tool in tools}
    tainted: dict[str, str] = {}
    for item in history:
        if not isinstance(item, ResultItem) or item.rc in NEVER_READ or item.call_id not in run_here:
            continue
        name = run_here[item.call_id].name
        offer, tool = offers.get(name), known.get(name)
        if offer is not None and offer.policy is not None:
            continue
        if tool is None or tool.policy.taints:
            tainted[name] = "" if tool is None else tool.source
    return tainted
