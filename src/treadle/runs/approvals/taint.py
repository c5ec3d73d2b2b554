"""Whose untrusted output stands in a conversation already, of tools that a run does not offer itself. Pure.

What a run offers, its turn knows. A tool that was offered before and is not now has still been read.
"""

from collections.abc import Mapping, Sequence

from treadle.core.items import AnyItem, CallItem, ResultItem
from treadle.core.tool_definitions import Offer, ServerTool
from treadle.engine.approval_reasons import NEVER_READ


def tainted_before(
    history: Sequence[AnyItem], offers: Mapping[str, Offer], tools: Sequence[ServerTool]
) -> dict[str, str]:
    """Return the names of such tools with where they come from; `tools` are all that there are, offered or not.

    Of a tool that is gone nobody can say any more whose words it gave: they count as anybody's, from nowhere.
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
