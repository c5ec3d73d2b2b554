"""Scenario files: one TOML document each, read strictly into frozen structs.

A file says what is there (`tools`, `tool`, `limits`, `world`), what the user says (`turn`), what the scripted model
answers (`script`), and what must have come of it (`expect`). A typo is an error that names its place. Reading only;
playing is the runner's. `write_schema` gives the same rules to editors.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from treadle.config import LimitsSection
from treadle.config.settings import RepairSection
from treadle.core.errors import ConfigError, ProtocolError
from treadle.core.json import BadJson, read_json
from treadle.core.tool_definitions import Effect
from treadle.protocols.protocol_registry import PROTOCOL_NAMES, ProtocolName
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.workspace.json_pointer import read_pointer

Mode = Literal["exact", "any_order", "subset", "superset"]
Comparator = Literal["exact", "number", "casefold", "regex", "path", "datetime"]
Setting = Literal["offline", "live"]
Event = Literal["tool.started", "text.delta", "arguments.delta", "tool.finished"]

SCENARIOS = Path(__file__).parent / "scenarios"
SCHEMA_NAME = "scenario.schema.json"
LIVE_TAG = "live"
"""The tag of scenarios that also say something of a real model."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ExpectedCall(_Table, frozen=True, kw_only=True):
    """A call as it should be made.

    Each argument in `args` must have its value, each in `one_of` one of the values; those named in `optional` may be
    missing, or there with any value if nothing else is said of them. Any other argument is one too many.
    """

    name: str
    args: dict[str, Any] = {}
    one_of: dict[str, tuple[Any, ...]] = {}
    optional: tuple[str, ...] = ()
    compare: dict[str, Comparator] = {}

    def __post_init__(self) -> None:
        accepted = {**{name: (value,) for name, value in self.args.items()}, **self.one_of}
        for name, comparator in self.compare.items():
            if name not in accepted:
                raise ValueError(f"`compare` names the argument `{name}`, which `args` and `one_of` do not")
            if comparator == "regex":
                _check_patterns(value for value in accepted[name] if isinstance(value, str))


_MARK = re.compile(r"call:\S+( \S+)?|(result|limit|status):\S+")
"""What milestones and mines can name."""


class ExpectedText(_Table, frozen=True, kw_only=True):
    """What the last answer must and must not say, whatever its case and spacing."""

    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    regex: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = (*self.contains, *self.excludes, *self.regex)
        if not given or "" in given:
            raise ValueError("`text` needs something in `contains`, `excludes` or `regex`, and nothing empty")
        _check_patterns(self.regex)


class ExpectedEnd(_Table, frozen=True, kw_only=True):
    """How the last run must have ended; an empty `limit` says that none was reached."""

    status: str = "completed"
    limit: str = ""


class Expect(_Table, frozen=True, kw_only=True):
    """What must have come of it: each field that is given is one grader's.

    `only` leaves it to the scripted model (offline) or to real ones (live), `protocols` to plays on these upstreams.
    """

    only: Setting | None = None
    protocols: tuple[ProtocolName, ...] = ()
    calls: tuple[ExpectedCall, ...] | None = None
    mode: Mode = "exact"
    no_calls: bool = False
    state: dict[str, Any] | None = None
    absent: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    mines: tuple[str, ...] = ()
    text: ExpectedText | None = None
    valid_arguments: bool = False
    calls_max: int | None = None
    rounds_max: int | None = None
    tokens_max: int | None = None
    seconds_max: float | None = None
    cost_usd_max: float | None = None
    ended: ExpectedEnd | None = None
    asks: bool = False
    wire: bool = False
    notes: tuple[str, ...] = ()
    judge: str | None = None

    def __post_init__(self) -> None:
        asked = [field for field in msgspec.structs.fields(self) if field.name not in ("only", "protocols", "mode")]
        if all(getattr(self, field.name) == field.default for field in asked):
            raise ValueError("nothing is expected")
        if self.calls == () and self.mode == "superset":
            raise ValueError("`calls` is empty and `mode` is superset: nothing could fail it")
        for mark in (*self.milestones, *self.mines):
            if not _MARK.fullmatch(mark):
                raise ValueError(f"`{mark}` is not call:NAME, call:NAME CODE, result:CODE, limit:NAME or status:STATUS")
        for pointer in (*(self.state or {}), *self.absent):
            try:
                read_pointer(pointer)
            except ProtocolError as error:
                raise ValueError(error.message) from None


class ScenarioWorld(_Table, frozen=True, kw_only=True):
    """What there is at the start: the workspace, and what the other tools of the toolkit work on."""

    facts: dict[str, Any] = {}
    draft: dict[str, Any] = {}
    locks: tuple[str, ...] = ()
    ui: dict[str, Any] = {}
    files: dict[str, str] = {}
    orders: dict[str, str] = {}
    phone_on: bool = True
    log_lines: Annotated[int, Meta(ge=0, le=100_000)] = 0


class CannedResult(_Table, frozen=True, kw_only=True):
    """What a canned tool gives: an output, or an error with its code."""

    output: str = ""
    error: str | None = None
    code: str = "failed"


class CannedTool(_Table, frozen=True, kw_only=True):
    """A tool that gives these results, one after the other, whatever it is called with.

    `parameters` is its JSON Schema as text; without one any object will do. With `repeat` the last result is given
    again and again.
    """

    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    parameters: str = '{"type":"object"}'
    effect: Effect = "write"
    results: tuple[CannedResult, ...] = ()
    repeat: bool = False

    def __post_init__(self) -> None:
        try:
            schema = read_json(self.parameters)
        except BadJson as error:
            raise ValueError(f"`parameters` is not JSON: {error}") from None
        if not isinstance(schema, dict):
            raise ValueError("`parameters` is not a JSON object")


class ScenarioDecision(_Table, frozen=True, kw_only=True):
    """What a person does with a proposal, `p1` being the first: confirms it, or rejects it for a reason."""

    proposal: str
    confirm: bool = False
    reason: str = ""


class UserTurn(_Table, frozen=True, kw_only=True):
    """What the user says; each turn is a run, and continues the one before.

    `tool_choice` is auto, none, required or the name of a tool. At the event `leave_at` the client goes away, at
    `crash_at` the process dies, and another one goes on with what is on disk.
    """

    user: str
    decide: tuple[ScenarioDecision, ...] = ()
    tool_choice: Annotated[str, Meta(min_length=1)] = "auto"
    leave_at: Event | None = None
    crash_at: Event | None = None


class Scenario(_Table, frozen=True, kw_only=True):
    """One scenario.

    `client_tool` are tools that the client runs, `distractors` how many useless tools are offered beside the others,
    `protocols` those of the upstreams it is played on. With `every_cut` each reply is read at every chunk size.
    """

    id: Annotated[str, Meta(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$")]
    title: Annotated[str, Meta(min_length=1)]
    turn: Annotated[tuple[UserTurn, ...], Meta(min_length=1)]
    script: Annotated[tuple[ScriptTurn, ...], Meta(min_length=1)]
    expect: Annotated[tuple[Expect, ...], Meta(min_length=1)]
    tags: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tool: tuple[CannedTool, ...] = ()
    client_tool: tuple[CannedTool, ...] = ()
    distractors: Annotated[int, Meta(ge=0, le=40)] = 0
    instructions: str = ""
    every_cut: bool = False
    model: Annotated[str, Meta(min_length=1)] = "script"
    protocols: Annotated[tuple[ProtocolName, ...], Meta(min_length=1)] = PROTOCOL_NAMES
    limits: LimitsSection = LimitsSection()
    repair: RepairSection = RepairSection()
    world: ScenarioWorld = ScenarioWorld()

    @property
    def is_live(self) -> bool:
        """Return whether it also says something of a real model."""
        return LIVE_TAG in self.tags

    def matches(self, patterns: Sequence[str]) -> bool:
        """Return whether one of the patterns fits its id, or is one of its tags; no pattern fits all."""
        return not patterns or any(fnmatchcase(self.id, each) or each in self.tags for each in patterns)


def read_scenario(toml: str, name: str = "scenario") -> Scenario:
    """Read one scenario; `name` is what errors call it.

    Raises: ConfigError, which names the place in the document.
    """
    try:
        return msgspec.convert(tomllib.loads(toml), Scenario)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not TOML: {error}", param=name) from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_readable(str(error))}", param=name, hint=_nearest(str(error))) from None


def write_schema() -> bytes:
    """Write the JSON Schema of a scenario file, for editors."""
    schema = msgspec.json.schema(Scenario)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A scenario of `treadle eval`"}
    return msgspec.json.format(msgspec.json.encode({**head, **schema}, order="deterministic"), indent=1) + b"\n"


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises: ConfigError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", param=str(path)) from None
    return read_scenario(text, path.name)


def find_scenarios(*paths: Path) -> list[Path]:
    """Return the scenario files named, those in folders named, or the ones that come with Treadle.

    Raises: ConfigError, when a path does not exist or has none.
    """
    found: list[Path] = []
    for path in paths or (SCENARIOS,):
        files = sorted(path.glob("**/*.toml")) if path.is_dir() else [path]
        if not files or not files[0].exists():
            raise ConfigError(f"there is no scenario at {path}", param=str(path), hint="name a .toml file or a folder")
        found += files
    return found


def read_scenarios(files: Sequence[Path]) -> tuple[dict[Path, Scenario], dict[Path, str]]:
    """Read scenario files, and say why the others cannot be played: they are broken, or use an id a second time.

    What is recorded of one scenario would overwrite the other's, so of two files with one id only the first is played.
    """
    read: dict[Path, Scenario] = {}
    unread: dict[Path, str] = {}
    first: dict[str, Path] = {}
    for file in files:
        try:
            scenario = load_scenario(file)
        except ConfigError as error:
            unread[file] = f"{error.message} ({error.hint})" if error.hint else error.message
            continue
        other = first.setdefault(scenario.id, file)
        if other is file:
            read[file] = scenario
        else:
            unread[file] = f"it has the same id as {other}, {scenario.id}; ids must differ"
    return read, unread


def _check_patterns(patterns: Iterable[str]) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"`{pattern}` is not a regular expression: {error}") from None


_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")


def _nearest(message: str) -> str | None:
    """Return the field that was probably meant."""
    unknown = _UNKNOWN.search(message)
    if unknown is None:
        return None
    # A field of that name may stand elsewhere: it is not what was meant here.
    names = sorted(set(_field_names(Scenario)) - {unknown["name"]})
    near = difflib.get_close_matches(unknown["name"], names, n=1)
    return f"did you mean `{near[0]}`?" if near else None


def _field_names(kind: Any, seen: frozenset[Any] = frozenset()) -> Iterator[str]:
    """Yield the names of all fields of a struct and of those inside it."""
    for field in msgspec.structs.fields(kind):
        yield field.name
        for inner in _structs_in(field.type):
            if inner not in seen:
                yield from _field_names(inner, seen | {kind, inner})


def _structs_in(kind: Any) -> Iterator[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for argument in get_args(kind):
        yield from _structs_in(argument)


def _readable(message: str) -> str:
    """Say it of a table: the decoder speaks of objects."""
    return message.removeprefix("Object contains ").replace("Object missing", "missing", 1)
