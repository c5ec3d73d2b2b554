"""The stage itself: a plan and an upstream's traits in, the plan as the upstream takes it and the way back out.

The order matters: choices are settled by the plan's own names, then tools and history are spelled with the
upstream's. Nothing here depends on a clock or on chance, so equal plans give equal requests.
"""

from typing import NamedTuple

import msgspec

from treadle.core.items import AnyItem, CallItem, OpaqueItem, ResultItem
from treadle.core.json import write_json
from treadle.core.memoized import Memo
from treadle.core.plan import Plan
from treadle.core.request import Note, Options
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.field_reader import OBJECT
from treadle.protocols.responses.hosted_calls import spell_out
from treadle.protocols.translation.custom_tools import wrapped_input, wrapped_spec
from treadle.protocols.translation.history_roles import Survey, mend_calls, move_files, settle_roles
from treadle.protocols.translation.name_mapping import Names
from treadle.protocols.translation.restore_events import Restorer
from treadle.protocols.translation.schema_adaptation import Schemas
from treadle.protocols.translation.tool_choice import settle_tools
from treadle.protocols.translation.upstream_features import Traits
from treadle.protocols.translation_notes import Notes


class Adapted(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that fits its upstream, what had to change for that, and who changes the answer back.

    `call_ids` are of the calls in its history, as they were and as they went out.
    """

    plan: Plan
    restorer: Restorer
    names: Names
    wrapped: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()
    call_ids: frozenset[str] = frozenset()


def adapt(plan: Plan, traits: Traits) -> Adapted:
    """Make the plan fit an upstream with these traits; what fits already stays the same object."""
    notes = Notes()
    settled = settle_tools(plan, traits, notes)
    if not traits.has_hosted_items and OpaqueItem in {*map(type, settled.items)}:
        settled = msgspec.structs.replace(settled, items=spell_out(settled.items, notes))
    fitted, survey = _fitted(settled.tools, traits), settled.fold(Survey)
    if survey.has_broken_calls:
        settled = msgspec.structs.replace(settled, items=mend_calls(settled.items, notes))
    names, adapted, call_ids = fitted.names, settled, survey.call_ids if survey.has_calls else _NO_IDS
    if not _fits(settled, fitted, survey):
        writer = _Writer(settled, fitted, notes)
        names, adapted = writer.names, writer.plan()
        if adapted.items is not settled.items:
            call_ids |= {item.call_id for item in adapted.items if type(item) is CallItem}
    elif fitted.written is not None and fitted.written is not settled.tools:
        adapted = msgspec.structs.replace(settled, tools=fitted.written)
    restorer = Restorer(
        names, fitted.offered, fitted.wrapped, traits.mends_names, settled.options.parallel_tool_calls is False
    )
    return Adapted(
        plan=adapted,
        restorer=restorer,
        names=names,
        wrapped=fitted.wrapped,
        notes=notes.all() if notes.added else (),
        call_ids=call_ids,
    )


_NO_IDS: frozenset[str] = frozenset()


class _Fitted(NamedTuple):
    """Tools `offered` to an upstream with these traits: their names there, and which of them go out as functions.

    Where nothing has to be mapped, `written` is how they go out, and `notes` what that lost.
    """

    traits: Traits
    offered: dict[str, ToolSpec]
    names: Names
    wrapped: frozenset[str]
    written: tuple[ToolSpec, ...] | None = None
    notes: tuple[Note, ...] = ()


def _nothing_yet(_: tuple[ToolSpec, ...]) -> dict[int, _Fitted]:
    return {}


_FITTED: Memo[tuple[ToolSpec, ...], dict[int, _Fitted]] = Memo(_nothing_yet)
"""Tools as upstreams take them, by the traits of the upstream."""

FITTED_MAX = 16
"""For how many kinds of upstreams the same tools are cached."""


def _fitted(tools: tuple[ToolSpec, ...], traits: Traits) -> _Fitted:
    """Return the tools for an upstream, whatever the history holds."""
    cached = _FITTED.of(tools)
    found = cached.get(id(traits))
    if found is not None and found.traits is traits:
        return found
    if len(cached) >= FITTED_MAX:
        cached.clear()
    offered = {spec.name: spec for spec in tools}
    custom = [spec.name for spec in tools if spec.kind == "custom"]
    wrapped = frozenset[str](() if traits.has_custom_tools else custom)
    found = _Fitted(traits, offered, Names(traits.names, offered), wrapped)
    if not found.names.count and not wrapped:
        notes = Notes()
        written = _write_tools(tools, found, Schemas(traits.schemas, notes), notes)
        found = found._replace(written=tools if written == tools else written, notes=notes.all())
    cached[id(traits)] = found
    return found


def _write_tools(tools: tuple[ToolSpec, ...], fitted: _Fitted, schemas: Schemas, notes: Notes) -> tuple[ToolSpec, ...]:
    """Return all tools as the upstream takes them."""
    traits, names = fitted.traits, fitted.names
    written: list[ToolSpec] = []
    for place, spec in enumerate(tools):
        path = f"tools[{place}]"
        strict = traits.unset_strict if spec.strict is None else spec.strict
        if not traits.has_strict:
            if strict:
                notes.add("strict_dropped", "dropped", "the upstream has no strict tools", f"{path}.strict")
            strict = None
        if spec.name in fitted.wrapped:
            tool = wrapped_spec(spec)
        elif spec.kind == "custom":
            tool = spec
        else:
            schema = schemas.write(spec.parameters, f"{path}.parameters")
            tool = msgspec.structs.replace(spec, parameters=schema, strict=strict)
        namespace = _namespace(traits, names, spec.name, spec.namespace)
        written.append(msgspec.structs.replace(tool, name=names.there(spec.name), namespace=namespace))
    return tuple(written)


def _namespace(traits: Traits, names: Names, name: str, namespace: str | None) -> str | None:
    """Return the namespace, where the upstream has them and the name in it is spelled as it was."""
    return namespace if traits.has_namespaces and names.there(name) == name else None


def _fits(plan: Plan, fitted: _Fitted, survey: Survey) -> bool:
    """Return whether a plan is sent unchanged but for its tools, as nearly all are.

    The calls of its history and their results must be of functions that are offered.
    """
    traits = fitted.traits
    return (
        fitted.written is not None
        and not fitted.notes
        and plan.tool_choice.name is None
        and plan.options.output_schema is None
        and not survey.has_odd_roles(traits)
        and (not survey.has_calls or _calls_fit(survey, fitted))
    )


def _calls_fit(survey: Survey, fitted: _Fitted) -> bool:
    """Return whether the calls of a history and their results are sent unchanged."""
    traits, offered = fitted.traits, fitted.offered
    return traits.has_result_files and survey.names <= offered.keys() and survey.has_plain_calls(traits.call_ids)


class _Writer:
    """Spells tools and history with the upstream's names, ids, kinds and schemas."""

    def __init__(self, plan: Plan, fitted: _Fitted, notes: Notes) -> None:
        self._plan = plan
        self._traits = fitted.traits
        self._notes = notes
        self._fitted = fitted
        self._calls = [item for item in plan.items if type(item) is CallItem or type(item) is ResultItem]
        self.names = fitted.names
        called = dict.fromkeys([item.name for item in self._calls if item.name])
        if not called.keys() <= fitted.offered.keys():
            self.names = Names(self._traits.names, [*[spec.name for spec in plan.tools], *called])

    def plan(self) -> Plan:
        """Return the plan as the upstream takes it; what was mapped is mapped back, so nothing is lost by that."""
        plan, notes, fitted = self._plan, self._notes, self._fitted
        items, tools, choice, options = self._items(), fitted.written, plan.tool_choice, plan.options
        if tools is None or self.names.count or options.output_schema is not None:
            schemas = Schemas(self._traits.schemas, notes)
            if tools is None or self.names.count:
                tools = _write_tools(plan.tools, fitted._replace(names=self.names), schemas, notes)
            else:
                notes.repeat(fitted.notes)
            options = _write_options(options, schemas)
        elif fitted.notes:
            notes.repeat(fitted.notes)
        if choice.name is not None:
            choice = msgspec.structs.replace(choice, name=self.names.there(choice.name))
        if self.names.count:
            notes.add("name_mapped", "emulated", "names of tools that the upstream cannot spell", "tools")
        if fitted.wrapped:
            message = "custom tools are offered as functions of one string"
            notes.add("custom_tool", "emulated", message, "tools", len(fitted.wrapped))
        if items is plan.items and tools is plan.tools and choice is plan.tool_choice and options is plan.options:
            return plan
        return msgspec.structs.replace(plan, items=items, tools=tools, tool_choice=choice, options=options)

    def _items(self) -> tuple[AnyItem, ...]:
        """Return the history as the upstream takes it."""
        items = settle_roles(self._plan.items, self._traits, self._notes)
        if not self._traits.has_result_files:
            items = move_files(items, self._notes)
        if not self._calls:
            return tuple(items)
        ids = Names(self._traits.call_ids, [item.call_id for item in self._calls])
        special = [
            item
            for item in self._calls
            if item.kind != "function" or (type(item) is CallItem and item.namespace is not None)
        ]
        if not (special or self.names.count or ids.count):
            return tuple(items)
        written: list[AnyItem] = []
        for item in items:
            if type(item) is CallItem:
                written.append(self._call(item, ids))
            elif type(item) is ResultItem:
                written.append(self._result(item, ids))
            else:
                written.append(item)
        return tuple(written)

    def _call(self, call: CallItem, ids: Names) -> CallItem:
        name, call_id = self.names.there(call.name), ids.there(call.call_id)
        namespace = _namespace(self._traits, self.names, call.name, call.namespace)
        kind, arguments = call.kind, call.arguments
        if kind == "custom" and not self._traits.has_custom_tools:
            kind, arguments = "function", wrapped_input(arguments)
        if (name, call_id, namespace, kind) == (call.name, call.call_id, call.namespace, call.kind):
            return call
        return msgspec.structs.replace(
            call, name=name, call_id=call_id, namespace=namespace, kind=kind, arguments=arguments
        )

    def _result(self, result: ResultItem, ids: Names) -> ResultItem:
        name, call_id = self.names.there(result.name), ids.there(result.call_id)
        kind = result.kind if self._traits.has_custom_tools else "function"
        if (name, call_id, kind) == (result.name, result.call_id, result.kind):
            return result
        return msgspec.structs.replace(result, name=name, call_id=call_id, kind=kind)


def _write_options(options: Options, schemas: Schemas) -> Options:
    """Return the options with the schema of the answer in the upstream's form."""
    fields = {} if options.output_schema is None else OBJECT.decode(options.output_schema)
    if "schema" not in fields:
        return options
    written = schemas.write(fields["schema"], "output_schema.schema", is_tool=False)
    if written is fields["schema"]:
        return options
    schema = msgspec.Raw(write_json({**fields, "schema": written}))
    return msgspec.structs.replace(options, output_schema=schema)
