"""Settings from environment variables: `TREADLE_SECTION__KEY`, `ENABLE_TOOLS`, and provider keys that make an upstream.

Reads only the mapping it is given, and from it never the value of a provider's key, only whether there is one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec

from treadle.config.error_messages import (
    Path,
    Problem,
    Tree,
    bare_type,
    dotted,
    field_types,
    is_struct,
    nearest,
    row_type,
    type_at,
)
from treadle.config.settings import Settings
from treadle.core.json import BadJson, read_json
from treadle.protocols.protocol_registry import CHAT, GEMINI, MESSAGES

PREFIX = "TREADLE_"
CONFIG_VARIABLE = "TREADLE_CONFIG"
ENABLE_TOOLS = "ENABLE_TOOLS"
_INDEX = re.compile(r"[0-9]{1,2}")


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that is configured by its key in the environment, or by its address if the server needs no key.

    `root` is the path that an address without any is meant to have; `wire_env` names another protocol to speak.
    """

    name: str
    key_env: str
    base_url: str
    root: str = "/v1"
    protocol: str = CHAT
    url_env: str | None = None
    model_env: str | None = None
    wire_env: str | None = None


PROVIDERS = (
    Provider(
        name="openai",
        key_env="OPENAI_API_KEY",
        base_url="https://api.openai.com/v1",
        url_env="OPENAI_BASE_URL",
        model_env="OPENAI_MODEL",
        wire_env="OPENAI_WIRE",
    ),
    Provider(
        name="anthropic",
        key_env="ANTHROPIC_API_KEY",
        base_url="https://api.anthropic.com/v1",
        protocol=MESSAGES,
        url_env="ANTHROPIC_BASE_URL",
        model_env="ANTHROPIC_MODEL",
    ),
    Provider(
        name="gemini",
        key_env="GEMINI_API_KEY",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        root="/v1beta",
        protocol=GEMINI,
        url_env="GEMINI_BASE_URL",
        model_env="GEMINI_MODEL",
    ),
    Provider(
        name="openrouter",
        key_env="OPENROUTER_API_KEY",
        base_url="https://openrouter.ai/api/v1",
        model_env="OPENROUTER_MODEL",
    ),
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value for one key, and where it comes from."""

    path: Path
    value: Any
    origin: str


def read_environment(env: Mapping[str, str]) -> tuple[list[Setting], list[Problem]]:
    """Return what the variables set, and what is wrong with them."""
    settings: list[Setting] = []
    problems: list[Problem] = []
    known = {variable_of(path): path for path in leaf_paths()}
    for name in sorted(key for key in env if key.startswith(PREFIX) and key != CONFIG_VARIABLE):
        path = _path_of(name)
        kind = type_at(Settings, path)
        if kind is None or is_struct(kind):
            problems.extend(_unknown(name, known))
            continue
        try:
            settings.append(Setting(path=path, value=_parse(env[name], kind), origin=f"environment {name}"))
        except (BadJson, ValueError) as error:
            problems.append(Problem(path=dotted(path), message=str(error), origin=f"environment {name}"))
    _read_switch(env, settings, problems)
    return settings, problems


def provider_upstreams(env: Mapping[str, str]) -> list[tuple[Provider, Tree]]:
    """Return an upstream for every provider whose key or address is set."""
    return [
        (provider, _upstream(provider, env))
        for provider in PROVIDERS
        if env.get(provider.key_env) or env.get(provider.url_env or "")
    ]


def _upstream(provider: Provider, env: Mapping[str, str]) -> Tree:
    url = (env.get(provider.url_env or "") or provider.base_url).rstrip("/")
    if url.count("/") == 2:
        url += provider.root
    upstream: Tree = {"name": provider.name, "base_url": url}
    if env.get(provider.key_env):
        upstream["key_env"] = provider.key_env
    protocol = env.get(provider.wire_env or "") or provider.protocol
    if protocol != CHAT:
        upstream["protocol"] = protocol
    return upstream


def leaf_paths(kind: Any = Settings, path: Path = ()) -> Iterable[Path]:
    """Yield the path of every key, lists of sections as one."""
    for name, inner in field_types(kind).items():
        if is_struct(inner):
            yield from leaf_paths(inner, (*path, name))
        else:
            yield (*path, name)


def variable_of(path: Path) -> str:
    """Return the variable that sets this key."""
    return PREFIX + "__".join(str(step).upper() for step in path)


def _path_of(name: str) -> Path:
    steps = name.removeprefix(PREFIX).lower().split("__")
    return tuple(int(step) if _INDEX.fullmatch(step) else step for step in steps)


def _unknown(name: str, known: Mapping[str, Path]) -> list[Problem]:
    """A name with `__` is meant for us; one without may belong to something else, unless it is nearly a key."""
    is_ours = "__" in name
    near = _meant(name, known) or nearest(name, known, cutoff=0.6 if is_ours else 0.85)
    if near is None and not is_ours:
        return []
    message = f"no key has this variable; did you mean {near}?" if near else "no key has this variable"
    return [Problem(path=name, message=message, origin="environment", hint="see: treadle config example")]


def _meant(name: str, known: Mapping[str, Path]) -> str | None:
    """Find the key of a name that lacks an underscore, its section (only the server's is left out), or its key."""
    given = name.removeprefix(PREFIX).lower()
    for variable, path in known.items():
        section, key = str(path[0]), str(path[-1])
        if given == "_".join(map(str, path)) or (given == key and section == "server"):
            return variable
        if given == section or (len(path) == 1 and key.endswith(f"_{given}")):
            return variable
    return None


def _read_switch(env: Mapping[str, str], settings: list[Setting], problems: list[Problem]) -> None:
    """Read ENABLE_TOOLS, the operator's switch: `false` overrides every other source."""
    if ENABLE_TOOLS not in env:
        return
    origin = f"environment {ENABLE_TOOLS}"
    try:
        value = _parse(env[ENABLE_TOOLS], bool)
    except ValueError as error:
        problems.append(Problem(path="tools.enabled", message=str(error), origin=origin))
        return
    settings.append(Setting(path=("tools", "enabled"), value=value, origin=origin))


def _parse(text: str, kind: Any) -> Any:
    """Read one variable as the type of its key. Raises: BadJson, ValueError."""
    bare = bare_type(kind)
    if get_origin(bare) is tuple:
        if row_type(kind) is not None or text.lstrip().startswith("["):
            return read_json(text)
        return [_parse(part.strip(), get_args(bare)[0]) for part in text.split(",") if part.strip()]
    if get_origin(bare) is dict:
        return read_json(text)
    if get_origin(bare) is not Literal and type(None) in get_args(bare):
        if not text:
            return None
        bare = get_args(bare)[0]
    if bare is str or get_origin(bare) is Literal:
        return text
    try:
        return msgspec.convert(text, bare, strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"{text!r} is not {_SHAPES[bare]}") from None


_SHAPES = {bool: "true or false", int: "a whole number", float: "a number"}
