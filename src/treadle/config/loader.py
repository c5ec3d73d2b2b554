"""Loads settings: treadle.toml, overridden by the environment, overridden by flags, checked as a whole.

Everything wrong is reported at once. A file that was only found in the working directory is used if a person trusts it
(`trust`). Only this module opens files with settings.
"""

import contextlib
import json
import logging
import os
import pwd
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.config.cross_checks import find_contradictions
from treadle.config.environment import CONFIG_VARIABLE, Setting, provider_upstreams, read_environment
from treadle.config.error_messages import Path as KeyPath
from treadle.config.error_messages import Problem, Tree, dotted, find_problems, line_of, raise_problems, valid_part
from treadle.config.repository_file import SWITCHES, Tightened, tighten
from treadle.config.settings import CASSETTE, SQLITE, Settings
from treadle.config.trusted_content import bound_files
from treadle.config.trusted_files import Doubt, Trust, Untrusted
from treadle.core.errors import ConfigError

log = logging.getLogger("treadle.config")

FILE_NAME = "treadle.toml"
NO_HOME = "/nonexistent"
"""Stands for a missing home directory, as in Debian's list of users: nothing can be created there."""
FILE_BYTES_MAX = 1_048_576


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """One file by itself: its settings, the keys it sets, and whether it is trusted."""

    settings: Settings
    keys: tuple[str, ...]
    doubt: Doubt


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with where they come from: `sources` maps a key to its origin; a key not in it has its default.

    `repository` is the file of the working directory if the user's own is another; `warnings` name what it may not set.
    `doubt` is set while a file that was found in the working directory is not trusted: then nothing of the
    settings may be acted upon.
    """

    settings: Settings
    sources: dict[str, str]
    file: str | None = None
    repository: str | None = None
    warnings: tuple[str, ...] = ()
    doubt: Doubt | None = None

    def source(self, key: str) -> str:
        """Return where the value of a key comes from."""
        return self.sources.get(key, "default")


def load_settings(
    path: str | Path | None = None, *, env: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> Settings:
    """Read the settings from a file (or ./treadle.toml), the environment and overrides by dotted key.

    Raises: ConfigError, naming every mistake; Untrusted, for a ./treadle.toml that is neither named nor trusted.
    """
    loaded = read_settings(path, env=env, overrides=overrides)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.settings


def read_settings(
    path: str | Path | None = None, *, env: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> Loaded:
    """Read the settings and remember where each came from. An override of None is no override.

    Raises: ConfigError, naming every mistake; Untrusted, for a file that was found and is not trusted.
    """
    loaded, problems = inspect_settings(path, env=env, overrides=overrides)
    raise_problems(problems)
    if loaded.doubt is not None:
        raise Untrusted(loaded.doubt)
    return loaded


def examine_file(file: Path, *, env: Mapping[str, str]) -> Examined:
    """Read one file by itself, to show what it would do; its paths are as it writes them.

    Raises: ConfigError, naming every mistake in it.
    """
    content = _read_content(file)
    given = _read_file(Path(file.name), content)
    tree, origins = _merge(given)
    raise_problems(find_problems(Settings, tree, origins))
    keys = tuple(dotted(setting.path) for setting in given if setting.value != {})
    settings = _valid_settings(tree)
    doubt = Trust(data_directory(env)).judge(file, content, bound_files(settings, file.parent))
    return Examined(settings=settings, keys=keys, doubt=doubt)


def inspect_settings(
    path: str | Path | None = None, *, env: Mapping[str, str], overrides: Mapping[str, object] | None = None
) -> tuple[Loaded, list[Problem]]:
    """Read the settings as far as they are right, and return every mistake beside them.

    Raises: ConfigError, for a file that can not be read at all.
    """
    file, is_found = _find_file(path, env)
    content = _read_content(file) if file is not None else b""
    own = _read_file(file, content, is_own=_is_at_home(file, env)) if file is not None else []
    others, problems = read_environment(env)
    for key, value in (overrides or {}).items():
        if value is not None:
            others.append(Setting(path=tuple(key.split(".")), value=value, origin="command line"))
    doubt = _doubt(file, content, own, others, env) if file is not None and is_found else None
    given = [*own, *others]
    repository = _find_repository(file)
    tightened = Tightened(settings=[], warnings=[])
    if repository is not None:
        # What tightens is decided against the settings without the repository, so those are merged first.
        standing = _valid_settings(_merge(given)[0])
        tightened = tighten(_read_file(repository, _read_content(repository)), standing, str(repository))
    tree, origins = _merge([*given, *tightened.settings])
    _add_defaults(tree, origins, env)
    problems += find_problems(Settings, tree, origins)
    settings = _valid_settings(tree)
    # A value that is wrong by itself is not reported a second time as a contradiction.
    wrong = {problem.path for problem in problems}
    problems += [each for each in find_contradictions(settings, origins) if each.path not in wrong]
    loaded = Loaded(
        settings=settings,
        sources=origins,
        file=str(file) if file is not None else None,
        repository=str(repository) if repository is not None else None,
        warnings=(*tightened.warnings, *_switched_off(settings, origins, tightened.settings, is_found=is_found)),
        doubt=doubt,
    )
    return loaded, problems


def _switched_off(
    settings: Settings, origins: Mapping[str, str], tightened: list[Setting], *, is_found: bool
) -> list[str]:
    """Return warnings that name the file and key that switch off tools, or that a repository restricts.

    A file that was only found is named even if no tool was configured.
    """
    tools = settings.tools
    asked = [*tools.load, *(f"[[mcp]] {each.name}" for each in settings.mcp), *(each.path for each in settings.guest)]
    by = {origins.get("tools.enabled", "")} if not tools.enabled else set[str]()
    what = ", ".join(asked) or ("every server tool" if is_found else "")
    found = [f"{origin}: tools.enabled = false switches off {what}" for origin in by if what and origin]
    for setting in tightened:
        key = dotted(setting.path)
        if key.endswith("].enabled") and key.startswith("tools.tighten[") and setting.value is False:
            match = json.dumps(list(settings.tools.tighten[cast("int", setting.path[2])].match))
            found.append(f"{setting.origin}: enabled = false in a rule switches off the tools that match {match}")
        if setting.origin in by or key not in SWITCHES:
            continue
        found.append(f"{setting.origin}: {key} = {msgspec.json.encode(setting.value).decode()} {SWITCHES[key]}")
    return found


def _doubt(
    file: Path, content: bytes, own: list[Setting], others: list[Setting], env: Mapping[str, str]
) -> Doubt | None:
    """Return what stands against a file that was only found; nothing against one that could do no harm."""
    bound = bound_files(_valid_settings(_merge(own)[0]), file.parent)
    doubt = Trust(data_directory(env)).judge(file, content, bound)
    if doubt.state == "trusted":
        return None
    has_rules = any(setting.path[:2] == ("tools", "rule") for setting in own)
    loosened = tighten(own, _valid_settings(_merge(others)[0]), str(file)).warnings
    return doubt if has_rules or loosened else None


def _valid_settings(tree: Tree) -> Settings:
    """Decode the valid part; routes depend on upstreams, so they are left out with them."""
    sound = valid_part(Settings, tree)
    if "upstream" not in sound and "upstream" in tree:
        sound.pop("route", None)
    return msgspec.convert(sound, Settings)


def data_directory(env: Mapping[str, str]) -> Path:
    """Return where a person's data of Treadle lives."""
    if base := env.get("XDG_DATA_HOME"):
        return Path(base) / "treadle"
    return Path(_home(env) or NO_HOME) / ".local" / "share" / "treadle"


def _home(env: Mapping[str, str]) -> str:
    """Return a person's home: as the environment has it, else as the system knows it; empty where there is none."""
    if home := env.get("HOME"):
        return home
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_dir
    return ""


def config_directory(env: Mapping[str, str]) -> Path | None:
    """Return the folder of a person's own treadle.toml; None without a home directory."""
    if base := env.get("XDG_CONFIG_HOME"):
        return Path(base) / "treadle"
    home = env.get("HOME")
    return Path(home) / ".config" / "treadle" if home else None


def _is_at_home(file: Path, env: Mapping[str, str]) -> bool:
    """Return whether a file is a person's own one."""
    folder = config_directory(env)
    return folder is not None and file == folder / FILE_NAME


def _find_file(path: str | Path | None, env: Mapping[str, str]) -> tuple[Path | None, bool]:
    """Return the user's file: the one that is named, else the one at home, else that of the working directory.

    The flag is true for the last: it was only found.
    """
    named = path or env.get(CONFIG_VARIABLE)
    if named:
        return Path(named), False
    folder = config_directory(env)
    if folder is not None and (folder / FILE_NAME).is_file():
        return folder / FILE_NAME, False
    return (Path(FILE_NAME), True) if Path(FILE_NAME).is_file() else (None, False)


def _find_repository(file: Path | None) -> Path | None:
    """Return the file of the working directory where it is not the user's: it may only tighten."""
    here = Path(FILE_NAME)
    if file is None or not here.is_file() or (file.exists() and here.samefile(file)):
        return None
    return here


def _read_content(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            raw = source.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        hint = "treadle config example > treadle.toml writes one" if is_missing else "check who may read the file"
        raise ConfigError(f"{file}: {error.strerror or error}", hint=hint) from None
    if len(raw) > FILE_BYTES_MAX:
        raise ConfigError(f"{file}: is larger than {FILE_BYTES_MAX} bytes")
    return raw


def _read_file(file: Path, content: bytes, *, is_own: bool = False) -> list[Setting]:
    try:
        text = content.decode()
        tree = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        message = f"{file}: is not TOML: {str(error) or 'nested too deeply'}"
        raise ConfigError(message, hint="correct that place; `treadle config example` prints a whole file") from None
    _rebase(tree, file.parent, is_own=is_own)
    return [Setting(path=path, value=value, origin=_place(file, text, path)) for path, value in _leaves(tree)]


def _place(file: Path, text: str, path: KeyPath) -> str:
    line = line_of(text, path)
    return f"{file}:{line}" if line is not None else str(file)


def _rebase(tree: Tree, folder: Path, *, is_own: bool) -> None:
    """Resolve relative paths against the folder of the file, not the working directory.

    The root of the local tools too where it is not named, but for a person's own file: that holds in every project.
    """
    if folder == Path():
        return
    tools, store = tree.get("tools"), tree.get("store")
    if tree.get("record"):
        tree["record"] = _from(folder, tree["record"])
    rows = tree.get("upstream")
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        _rebase_url(row, "base_url", CASSETTE, folder)
    guests = tree.get("guest")
    for row in cast("list[Any]", guests) if isinstance(guests, list) else []:
        _rebase_url(row, "path", "", folder)
        _rebase_url(row, "schema", "", folder)
        _rebase_list(row, "wasi_read", folder)
        _rebase_list(row, "wasi_write", folder)
    servers = tree.get("mcp")
    for row in cast("list[Any]", servers) if isinstance(servers, list) else []:
        _rebase_url(row, "cwd", "", folder)
    if isinstance(tools, dict):
        section = cast("Tree", tools)
        local, load = section.get("local"), section.get("load")
        if isinstance(local, dict):
            table = cast("Tree", local)
            if "root" in table or not is_own:
                table["root"] = _from(folder, table.get("root", "."))
        if isinstance(load, list):
            section["load"] = [
                _from(folder, name) if str(name).endswith(".py") else name for name in cast("list[Any]", load)
            ]
    _rebase_url(store, "url", SQLITE, folder)


def _rebase_url(section: Any, key: str, scheme: str, folder: Path) -> None:
    """Resolve the file behind a URL scheme against that folder."""
    url = cast("Tree", section).get(key) if isinstance(section, dict) else None
    if isinstance(url, str) and url.startswith(scheme) and url != scheme:
        section[key] = scheme + _from(folder, url.removeprefix(scheme))


def _rebase_list(section: Any, key: str, folder: Path) -> None:
    """Resolve a list of folders against that folder."""
    names = cast("Tree", section).get(key) if isinstance(section, dict) else None
    if isinstance(names, list):
        section[key] = [_from(folder, name) for name in cast("list[Any]", names)]


def _from(folder: Path, name: Any) -> Any:
    if not isinstance(name, str) or name.startswith("~"):
        return name
    return os.path.normpath(folder / name)


def _leaves(value: Any, path: KeyPath = ()) -> list[tuple[KeyPath, Any]]:
    """Flatten tables and lists of tables; everything else is a leaf."""
    if isinstance(value, dict) and value:
        pairs = cast("Tree", value).items()
        return [leaf for key, inner in pairs for leaf in _leaves(inner, (*path, key))]
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in cast("list[Any]", value)):
        rows = enumerate(cast("list[Any]", value))
        return [leaf for index, row in rows for leaf in _leaves(row, (*path, index))]
    return [(path, value)] if path else []


def _merge(settings: list[Setting]) -> tuple[Tree, dict[str, str]]:
    """Merge the settings, later ones over earlier ones, and record the origin of each value."""
    tree: Tree = {}
    origins: dict[str, str] = {}
    # ENABLE_TOOLS=false is merged again at the end: it overrides flags too.
    off = [setting for setting in settings if setting.origin == "environment ENABLE_TOOLS" and not setting.value]
    for setting in [*settings, *off]:
        name = dotted(setting.path)
        for key in [key for key in origins if key.startswith((f"{name}.", f"{name}["))]:
            del origins[key]
        _put(tree, setting.path, setting.value)
        origins[name] = setting.origin
    return tree, origins


def _put(tree: Any, path: KeyPath, value: Any) -> None:
    """Set one value. A step of the wrong type replaces what is there; the check reports the mistake."""
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        rows = cast("list[Any]", tree)
        rows.extend({} for _ in range(step + 1 - len(rows)))
    if not rest:
        tree[step] = value
        return
    wanted: type = list if isinstance(rest[0], int) else dict
    inner: Any = cast("Tree", tree).get(str(step)) if isinstance(tree, dict) else tree[step]
    if not isinstance(inner, wanted):
        inner = wanted()
        tree[step] = inner
    _put(inner, rest, value)


def _add_defaults(tree: Tree, origins: dict[str, str], env: Mapping[str, str]) -> None:
    """Add defaults that depend on the machine: the store's path, and upstreams from provider keys."""
    store = tree.setdefault("store", {})
    if isinstance(store, dict) and not cast("Tree", store).get("url"):
        if not (env.get("XDG_DATA_HOME") or _home(env)):
            raise ConfigError(
                "there is no home directory to keep the store in",
                param="store.url",
                hint="set HOME or XDG_DATA_HOME, or name a file: TREADLE_STORE__URL=sqlite:///PATH",
            )
        store["url"] = f"{SQLITE}{data_directory(env) / 'treadle.db'}"
    if tree.get("upstream"):
        return
    found = provider_upstreams(env)
    tree["upstream"] = [upstream for _, upstream in found]
    for index, (provider, upstream) in enumerate(found):
        named_by = provider.key_env if "key_env" in upstream else provider.url_env
        origins.update({f"upstream[{index}].{key}": f"environment {named_by}" for key in upstream})
        model = env.get(provider.model_env or "")
        if model and not tree.get("default_model"):
            tree["default_model"] = model if len(found) == 1 else f"{provider.name}/{model}"
            origins["default_model"] = f"environment {provider.model_env}"
