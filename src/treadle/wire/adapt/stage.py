"""The stage itself: a plan and an upstream's traits in, the plan as the upstream takes it and the way back out.

The order matters: choices are settled by the plan's own names, then tools and history are spelled with the
upstream's. Nothing here depends on a clock or on chance, so equal plans give equal requests.
"""

from typing import NamedTuple

import msgspec

from treadle.canon.items import AnyItem, CallItem, ResultItem
from treadle.canon.json import write_json
from treadle.canon.memo import Memo
from treadle.canon.plan import Plan
from treadle.canon.request import Note, Options
from treadle.canon.tools import ToolChoice, ToolSpec
from treadle.wire.adapt.choices import settle_tools
from treadle.wire.adapt.custom import wrapped_input, wrapped_spec
from treadle.wire.adapt.history import move_files, settle_roles
from treadle.wire.adapt.names import Names
from treadle.wire.adapt.restore import Restorer
from treadle.wire.adapt.schemas import Schemas
from treadle.wire.adapt.traits import Traits
from treadle.wire.fields import OBJECT
from treadle.wire.notes import Notes
from treadle.wire.responses.hosted import spell_out


class Adapted(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that fits its upstream, what had to change for that, and who changes the answer back."""

    plan: Plan
    restorer: Restorer
    names: Names
    wrapped: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()


def adapt(plan: Plan, traits: Traits) -> Adapted:
    """Make the plan fit an upstream with these traits."""
    notes = Notes()
    settled = settle_tools(plan, traits, notes)
    if not traits.has_hosted_items:
        settled = msgspec.structs.replace(settled, items=spell_out(settled.items, notes))
    writer = _Writer(settled, traits, notes)
    adapted = msgspec.structs.replace(
        settled,
        items=writer.items(),
        tools=writer.tools(),
        tool_choice=writer.choice(),
        options=writer.options(),
    )
    writer.tell()
    restorer = Restorer(
        writer.names,
        settled.tools,
        writer.wrapped,
        mends_names=traits.mends_names,
        is_single=settled.options.parallel_tool_calls is False,
    )
    return Adapted(plan=adapted, restorer=restorer, names=writer.names, wrapped=writer.wrapped, notes=notes.all())


class _Written(NamedTuple):
    """Tools as they were written for an upstream with these traits, and what had to be noted."""

    traits: Traits
    tools: tuple[ToolSpec, ...]
    notes: tuple[Note, ...]


def _nothing_yet(_: tuple[ToolSpec, ...]) -> dict[int, _Written]:
    return {}


_WRITTEN: Memo[tuple[ToolSpec, ...], dict[int, _Written]] = Memo(_nothing_yet)
"""Tools as upstreams take them, by the traits of the upstream."""

WRITTEN_MAX = 16
"""For how many kinds of upstreams the same tools are kept as they were written."""

_CALLS = frozenset({CallItem, ResultItem})


class _Writer:
    """Spells tools and history with the upstream's names, ids, kinds and schemas."""

    def __init__(self, plan: Plan, traits: Traits, notes: Notes) -> None:
        self._plan = plan
        self._traits = traits
        self._notes = notes
        self._schemas = Schemas(traits.schemas, notes)
        calls = [item for item in plan.items if type(item) is CallItem or type(item) is ResultItem]
        self.names = Names(
            traits.names, [spec.name for spec in plan.tools] + [item.name for item in calls if item.name]
        )
        self._ids = Names(traits.call_ids, [item.call_id for item in calls])
        self._has_calls = bool(calls)
        custom = [spec.name for spec in plan.tools if spec.kind == "custom"]
        self.wrapped = frozenset[str](() if traits.has_custom_tools else custom)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return all tools as the upstream takes them: the same objects for the same tools, where their names fit."""
        if self.names.count or self.wrapped:
            return self._write_tools()
        kept, traits = _WRITTEN.of(self._plan.tools), self._traits
        found = kept.get(id(traits))
        if found is None or found.traits is not traits:
            if len(kept) >= WRITTEN_MAX:
                kept.clear()
            notes, self._notes = self._notes, Notes()
            self._schemas = Schemas(traits.schemas, self._notes)
            found = kept[id(traits)] = _Written(traits, self._write_tools(), self._notes.all())
            self._notes, self._schemas = notes, Schemas(traits.schemas, notes)
        self._notes.repeat(found.notes)
        return found.tools

    def _write_tools(self) -> tuple[ToolSpec, ...]:
        return tuple([self._tool(spec, f"tools[{place}]") for place, spec in enumerate(self._plan.tools)])

    def _tool(self, spec: ToolSpec, path: str) -> ToolSpec:
        """Return one tool as the upstream takes it."""
        strict = self._traits.unset_strict if spec.strict is None else spec.strict
        if not self._traits.has_strict:
            if strict:
                self._notes.add("strict_dropped", "dropped", "the upstream has no strict tools", f"{path}.strict")
            strict = None
        if spec.name in self.wrapped:
            written = wrapped_spec(spec)
        elif spec.kind == "custom":
            written = spec
        else:
            schema = self._schemas.write(spec.parameters, f"{path}.parameters")
            written = msgspec.structs.replace(spec, parameters=schema, strict=strict)
        name = self.names.there(spec.name)
        return msgspec.structs.replace(written, name=name, namespace=self._namespace(spec.name, spec.namespace))

    def items(self) -> tuple[AnyItem, ...]:
        """Return the history as the upstream takes it."""
        items = settle_roles(self._plan.items, self._traits, self._notes)
        if not self._traits.has_result_files:
            items = move_files(items, self._notes)
        if not self._has_calls:
            return tuple(items)
        return tuple([self._item(item) if type(item) in _CALLS else item for item in items])

    def choice(self) -> ToolChoice:
        """Return the choice with the upstream's name of the tool."""
        choice = self._plan.tool_choice
        if choice.name is None:
            return choice
        return msgspec.structs.replace(choice, name=self.names.there(choice.name))

    def options(self) -> Options:
        """Return the options with the schema of the answer in the upstream's form."""
        options = self._plan.options
        if options.output_schema is None:
            return options
        fields = OBJECT.decode(options.output_schema)
        if "schema" not in fields:
            return options
        written = self._schemas.write(fields["schema"], "output_schema.schema", is_tool=False)
        if written is fields["schema"]:
            return options
        schema = msgspec.Raw(write_json({**fields, "schema": written}))
        return msgspec.structs.replace(options, output_schema=schema)

    def tell(self) -> None:
        """Note what was mapped; it is mapped back, so nothing is lost."""
        if self.names.count:
            self._notes.add("name_mapped", "emulated", "names of tools that the upstream cannot spell", "tools")
        if self.wrapped:
            message = "custom tools are offered as functions of one string"
            self._notes.add("custom_tool", "emulated", message, "tools", len(self.wrapped))

    def _item(self, item: AnyItem) -> AnyItem:
        match item:
            case CallItem():
                return self._call(item)
            case ResultItem():
                return self._result(item)
            case _:
                return item

    def _call(self, call: CallItem) -> CallItem:
        name, call_id = self.names.there(call.name), self._ids.there(call.call_id)
        namespace = self._namespace(call.name, call.namespace)
        kind, arguments = call.kind, call.arguments
        if kind == "custom" and not self._traits.has_custom_tools:
            kind, arguments = "function", wrapped_input(arguments)
        if (name, call_id, namespace, kind) == (call.name, call.call_id, call.namespace, call.kind):
            return call
        return msgspec.structs.replace(
            call, name=name, call_id=call_id, namespace=namespace, kind=kind, arguments=arguments
        )

    def _result(self, result: ResultItem) -> ResultItem:
        name, call_id = self.names.there(result.name), self._ids.there(result.call_id)
        kind = result.kind if self._traits.has_custom_tools else "function"
        if (name, call_id, kind) == (result.name, result.call_id, result.kind):
            return result
        return msgspec.structs.replace(result, name=name, call_id=call_id, kind=kind)

    def _namespace(self, name: str, namespace: str | None) -> str | None:
        """Return the namespace, where the upstream has them and the name in it is spelled as it was."""
        return namespace if self._traits.has_namespaces and self.names.there(name) == name else None
