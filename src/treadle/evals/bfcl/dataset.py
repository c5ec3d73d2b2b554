"""Reads the data of `bfcl-eval` out of its wheel, which is used as an archive only and is no part of Treadle.

Single-turn sets have answers as accepted values; multi-turn sets have calls as text, and classes with state.
"""

import ast
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.json import BadJson, read_json

WHEEL_VARIABLE = "TREADLE_BFCL"
SINGLE = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "irrelevance",
    "live_irrelevance",
    "live_relevance",
)
MULTI = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
SETS = (*SINGLE, *MULTI)
NO_ANSWERS = ("irrelevance", "live_irrelevance", "live_relevance")
MORE_FUNCTIONS = "I have updated some more functions you can choose from. What about now?"
"""The user message that announces tools which were missing before."""

DOCUMENTS: dict[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""The classes of the multi-turn sets, and the files that describe them."""

_TYPES = {
    "dict": "object",
    "float": "number",
    "double": "number",
    "tuple": "array",
    "list": "array",
    "int": "integer",
    "bool": "boolean",
    "str": "string",
}
Accepted = dict[str, list[Any]]
"""The values that each argument of a call may have; an empty text says that it may be left out."""


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function as offered to the model, with a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class TruthCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a ground truth."""

    name: str
    arguments: dict[str, Any]


class BfclQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `turns` are messages of each turn; `answers` the accepted calls of a single turn, `truth` the calls of
    each of several; `later` are functions that are only offered from a turn on."""

    id: str
    set: str
    turns: list[list[dict[str, str]]]
    functions: list[Function]
    answers: list[dict[str, Accepted]] = []
    truth: list[list[TruthCall]] = []
    later: dict[int, list[str]] = {}
    classes: list[str] = []
    config: dict[str, Any] = {}

    @property
    def is_multi(self) -> bool:
        """Return whether it has several turns and a state."""
        return self.set in MULTI

    @property
    def is_sound(self) -> bool:
        """Return whether its truth only calls functions offered by then; otherwise the question has no answer."""
        offers = [{function.name for function in self.offered(turn)} for turn in range(len(self.truth))]
        return all(call.name in names for names, calls in zip(offers, self.truth, strict=True) for call in calls)

    def offered(self, turn: int) -> list[Function]:
        """Return the functions that are offered in a turn, counted from 0."""
        hidden = {name for start, names in self.later.items() if turn < start for name in names}
        return [function for function in self.functions if function.name not in hidden]


def find_wheel(named: Path | None) -> Path:
    """Return the wheel that is named, here or in the environment.

    Raises: ConfigError, saying how to get it.
    """
    path = named or (Path(os.environ[WHEEL_VARIABLE]) if os.environ.get(WHEEL_VARIABLE) else None)
    if path is None or not path.is_file():
        raise ConfigError(
            f"there is no wheel of bfcl-eval{'' if path is None else f' at {path}'}",
            param="wheel",
            hint=f"pip download --no-deps bfcl-eval, then --wheel FILE or {WHEEL_VARIABLE}=FILE",
        )
    return path


class Archive:
    """The wheel, opened."""

    def __init__(self, wheel: Path) -> None:
        self.path = wheel
        try:
            self._zip = zipfile.ZipFile(wheel)
        except (OSError, zipfile.BadZipFile) as error:
            raise ConfigError(f"{wheel} is no wheel: {error}", param="wheel") from None
        self._functions: dict[str, list[Function]] = {}

    def questions(self, name: str) -> Iterator[BfclQuestion]:
        """Yield the entries of a set, in order.

        Raises: ConfigError, for a set that is not there.
        """
        rows = self._lines(f"BFCL_v4_{name}.json")
        answers = (
            {}
            if name in NO_ANSWERS
            else {row["id"]: row["ground_truth"] for row in self._lines(f"possible_answer/BFCL_v4_{name}.json")}
        )
        for row in rows:
            if name in MULTI:
                yield self._multi(name, row, answers[row["id"]])
            else:
                yield BfclQuestion(
                    id=row["id"],
                    set=name,
                    turns=row["question"],
                    functions=[_function(each) for each in row["function"]],
                    answers=answers.get(row["id"], []),
                )

    def _multi(self, name: str, row: Mapping[str, Any], truth: list[list[str]]) -> BfclQuestion:
        functions = [
            function
            for each in row["involved_classes"]
            for function in self._document(each)
            if function.name not in row.get("excluded_function", [])
        ]
        orders = {function.name: list(function.parameters.get("properties", {})) for function in functions}
        turns = [turn or [{"role": "user", "content": MORE_FUNCTIONS}] for turn in row["question"]]
        return BfclQuestion(
            id=row["id"],
            set=name,
            turns=turns,
            functions=functions,
            truth=[[read_call(call, orders) for call in turn] for turn in truth],
            later={int(turn): names for turn, names in row.get("missed_function", {}).items()},
            classes=row["involved_classes"],
            config=row["initial_config"],
        )

    def _document(self, name: str) -> list[Function]:
        if name not in self._functions:
            rows = self._lines(f"multi_turn_func_doc/{DOCUMENTS[name]}.json")
            self._functions[name] = [_function(row) for row in rows]
        return self._functions[name]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        try:
            data = self._zip.read(f"bfcl_eval/data/{name}").decode()
            return [cast("dict[str, Any]", read_json(line)) for line in data.splitlines() if line.strip()]
        except (KeyError, BadJson, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} has no {name}: {error}", param="wheel") from None


def read_call(text: str, orders: Mapping[str, list[str]]) -> TruthCall:
    """Read a call as Python writes it: `mv(source='a', destination='b')`; arguments without a name by their order.

    Raises: ConfigError.
    """
    try:
        node = ast.parse(text, mode="eval").body
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name | ast.Attribute)
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        names = orders.get(name, [])
        arguments = {names[place]: ast.literal_eval(value) for place, value in enumerate(node.args)}
        arguments |= {word.arg or "": ast.literal_eval(word.value) for word in node.keywords}
    except (SyntaxError, ValueError, AssertionError, IndexError) as error:
        raise ConfigError(f"the call {text!r} cannot be read: {error}", param="wheel") from None
    return TruthCall(name=name, arguments=arguments)


def _function(row: Mapping[str, Any]) -> Function:
    schema = cast("dict[str, Any]", _schema(row["parameters"]))
    return Function(name=row["name"], description=row.get("description", ""), parameters=schema)


def _schema(schema: Any) -> Any:
    """Return a schema with the types that JSON Schema has; `any` is none of them."""
    if isinstance(schema, list):
        return [_schema(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    made = {key: _schema(value) if key != "default" else value for key, value in cast("dict[str, Any]", schema).items()}
    kind = made.get("type")
    if kind == "any":
        del made["type"]
    elif isinstance(kind, str):
        made["type"] = _TYPES.get(kind, kind)
    return made
