"""Chooses the tools that a run offers to its model, from the client's and Treadle's own, and who runs each."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.core.errors import LimitExceeded, ProtocolError
from treadle.core.request import Note, Request
from treadle.core.tool_definitions import AUTO, Offer, ServerTool, ToolChoice, ToolSpec, is_person_only
from treadle.protocols.translation_notes import HOSTED
from treadle.providers.direct_call_model import DIRECT_MODEL
from treadle.providers.model_router import match_pattern
from treadle.tools.policy_rules import fits

REPEATABLE = ("read", "idempotent")
"""Effects that are harmless when each of several choices makes the same call."""
Collision = Literal["server", "client", "error"]
Allowed = tuple[str, ...] | None
"""Names, patterns and sources of tools that may be offered; None is all."""

CACHED_MAX = 32
"""How many lists of client tools are cached with their offers."""


class OfferRules(msgspec.Struct, frozen=True, kw_only=True):
    """How tools are chosen. `routes` map model patterns to the server tools that those models are offered; the first
    match applies, and None allows all tools."""

    collision: Collision = "server"
    tools_max: int = 128
    tools_bytes_max: int = 200_000
    routes: tuple[tuple[str, Allowed], ...] = ()

    def allowed(self, model: str) -> Allowed:
        """Return the patterns of the tools that a model may be offered; None is all."""
        if model != DIRECT_MODEL:
            for pattern, tools in self.routes:
                if match_pattern(pattern, model) is not None:
                    return tools
        return None


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of one run by name, in the order the model sees them, and notes on what was left out.

    Immutable and shared between runs. `own` are the client's tools, `tools` all server tools that were considered.
    """

    offers: dict[str, Offer]
    own: tuple[ToolSpec, ...]
    tools: dict[str, ServerTool]
    choice: ToolChoice
    notes: tuple[Note, ...] = ()


class OfferCache:
    """Chooses offers, and caches them for requests with the same client tools until the server's tools change."""

    def __init__(self, rules: OfferRules) -> None:
        self._rules = rules
        self._cached: dict[
            tuple[int, Allowed, Allowed], tuple[tuple[ToolSpec, ...], Sequence[ServerTool], Offered]
        ] = {}

    def make(self, request: Request, tools: Sequence[ServerTool], model: str, only: Allowed) -> Offered:
        """Return the offers of a request to a model; `only` narrows the server tools further.

        Raises: as `make_offers`.
        """
        lists = (self._rules.allowed(model) if self._rules.routes else None, only)
        if request.tool_choice != AUTO or request.surface.choices != 1:
            return make_offers(request, narrow(tools, *lists), self._rules)
        own = request.tools
        usual = self._cached.get((id(own), *lists))
        if usual is not None and usual[0] is own and usual[1] is tools:
            return usual[2]
        offered = make_offers(request, narrow(tools, *lists), self._rules)
        if len(self._cached) >= CACHED_MAX:
            self._cached.clear()
        self._cached[(id(own), *lists)] = (own, tools, offered)
        return offered


def narrow(server_tools: Sequence[ServerTool], *lists: tuple[str, ...] | None) -> list[ServerTool]:
    """Return the tools that every allow-list permits by name or source; None permits all."""
    return [tool for tool in server_tools if all(allowed is None or fits(tool, allowed) for allowed in lists)]


def make_offers(request: Request, server_tools: Sequence[ServerTool], rules: OfferRules) -> Offered:
    """Decide which tools the model is offered and who runs each; `server_tools` are the permitted ones.

    Raises: ProtocolError for a choice or a name that cannot be; LimitExceeded for too many client tools.
    """
    offers: dict[str, Offer] = {}
    for position, spec in enumerate(request.tools):
        if spec.name in offers:
            raise ProtocolError(f"The tool name {spec.name!r} is used twice.", param=f"tools[{position}].name")
        offers[spec.name] = Offer(spec=spec, side="client")
    _check_size(offers, rules)
    notes = [*_drop_person_only(offers), *_add_server_tools(offers, request, server_tools, rules)]
    choice = request.tool_choice
    if choice.allowed is not None:
        offers = {name: offer for name, offer in offers.items() if name in choice.allowed}
    if choice.mode == "named" and choice.name not in offers:
        raise ProtocolError(f"tool_choice names the tool {choice.name!r}, which is not offered.", param="tool_choice")
    if choice.mode == "required" and not offers and HOSTED not in request.options.extra:
        raise ProtocolError("tool_choice is 'required', but no tool is offered.", param="tool_choice")
    names = {tool.name: tool for tool in server_tools}
    return Offered(offers=offers, own=request.tools, tools=names, choice=choice, notes=tuple(notes))


def _drop_person_only(offers: dict[str, Offer]) -> list[Note]:
    """Leave out person-only tools: calls of them would be refused anyway."""
    names = [name for name in offers if is_person_only(name)]
    for name in names:
        del offers[name]
    if not names:
        return []
    message = f"Not offered, facts are committed by a person only: {', '.join(names)}."
    return [Note(code="tools_person_only", action="dropped", message=message, field="tools", count=len(names))]


def _add_server_tools(
    offers: dict[str, Offer], request: Request, server_tools: Sequence[ServerTool], rules: OfferRules
) -> list[Note]:
    """Add Treadle's own tools as far as they fit, and return a note on those that did not."""
    if request.tool_choice.mode == "none":
        return []
    size = sum(_size(offer) for offer in offers.values())
    left_out: list[str] = []
    is_single = request.surface.choices == 1
    for tool in server_tools:
        if is_person_only(tool.name):
            continue
        if not is_single and tool.policy.effect not in REPEATABLE:
            left_out.append(tool.name)
            continue
        offer = Offer(spec=tool.spec, side="server", policy=tool.policy, source=tool.source)
        if tool.name in offers:
            _collide(offers, offer, rules.collision)
            continue
        size += _size(offer)
        if len(offers) >= rules.tools_max or size > rules.tools_bytes_max:
            left_out.append(tool.name)
            continue
        offers[tool.name] = offer
    if not left_out:
        return []
    why = "there are too many tools" if is_single else "several choices would repeat their effects"
    message = f"Not offered, {why}: {', '.join(left_out)}."
    return [Note(code="tools_left_out", action="dropped", message=message, field="tools", count=len(left_out))]


def _collide(offers: dict[str, Offer], offer: Offer, rule: Collision) -> None:
    name = offer.spec.name
    if rule == "error":
        raise ProtocolError(
            f"The tool {name!r} exists on the server too.",
            param="tools",
            hint='Rename it, or set tools.collision to "server" or "client".',
        )
    if rule == "server":
        offers[name] = offer


def _check_size(offers: dict[str, Offer], rules: OfferRules) -> None:
    if len(offers) > rules.tools_max:
        raise LimitExceeded(f"The request has {len(offers)} tools; {rules.tools_max} are allowed.", param="tools")
    size = sum(_size(offer) for offer in offers.values())
    if size > rules.tools_bytes_max:
        raise LimitExceeded(f"The tools take {size} bytes; {rules.tools_bytes_max} are allowed.", param="tools")


def _size(offer: Offer) -> int:
    spec = offer.spec
    return len(spec.name) + len(spec.description.encode()) + len(bytes(spec.parameters))
