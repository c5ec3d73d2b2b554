"""What a command may read beside its own folders, and which variables it gets. Standard library only; no state."""

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/proc")
SYSTEM_FACTS = ("/sys/devices/system/cpu", "/sys/fs/cgroup", "/run/current-system")
NAME_SERVICE = ("/run/systemd/resolve",)
"""Where /etc/resolv.conf may lead to; needed only with a network."""
SETTINGS = "/etc"
SECRET_SETTINGS = (
    "shadow*",
    "gshadow*",
    "sudoers*",
    "ssh",
    "ssl/private",
    "*.keytab",
    "NetworkManager",
    "wpa_supplicant",
    "docker",
    "kubernetes",
    "wireguard",
    "openvpn",
)
ENV_NAMES = ("PATH", "LANG", "LC_*", "TERM", "TZ", "USER", "LOGNAME", "SHELL")
ENV_FIXED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "NO_COLOR": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "HISTFILE": "/dev/null",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_GIT_WRITE_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.editor": "true",
    "sequence.editor": "true",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "diff.external": "",
    "gc.auto": "0",
    "safe.bareRepository": "explicit",
}
GIT_WRITE_ENV = {
    "GIT_CONFIG_COUNT": str(len(_GIT_WRITE_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{at}": name for at, name in enumerate(_GIT_WRITE_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{at}": value for at, value in enumerate(_GIT_WRITE_SETTINGS.values())},
    "GIT_EDITOR": "true",
}
"""What a command gets that may write a repository: no hooks, no monitor, no editor, no signatures."""
PATH_DEFAULT = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASS", "CRED", "AUTH")
_SHARED_PREFIXES = ("", ".local", ".config", ".cache")
"""Folders of a home that hold programs and much else."""
_PROGRAM_FOLDERS = ("lib", "lib64", "libexec")


def environment(source: Mapping[str, str], more: Sequence[str], scratch: str) -> dict[str, str]:
    """Return the variables of a command: few, none that looks like a secret unless it is named exactly.

    The home is a folder of the scratch space, so that nothing of the user's own is read or changed by chance.
    """
    chosen = {name: value for name, value in source.items() if _is_wanted(name, more)}
    chosen.setdefault("PATH", PATH_DEFAULT)
    return {**chosen, **ENV_FIXED, "HOME": f"{scratch}/home", "TMPDIR": f"{scratch}/tmp"}


def readable(search_path: str, home: str, *, network: bool) -> list[str]:
    """Return what every command may read: the system, its settings without secrets, and the programs of PATH."""
    programs = [place for entry in search_path.split(":") for place in _programs(entry, home)]
    service = NAME_SERVICE if network else ()
    return list(dict.fromkeys([*SYSTEM, *SYSTEM_FACTS, *service, *_settings(SETTINGS, ""), *programs]))


def all_but(top: str, hidden: Iterable[str]) -> list[str]:
    """Return paths that together hold everything below a folder but what is hidden: Landlock only grants."""
    base = top.rstrip("/")
    hidden = set(hidden)
    if top in hidden:
        return []
    hidden = {path for path in hidden if path.startswith(f"{base}/")}
    if not hidden:
        return [top]
    opened = {base} | {path[:at] for path in hidden for at in range(len(base) + 1, len(path)) if path[at] == "/"}
    known = opened | hidden
    found: list[str] = []
    for folder in opened:
        # It may be gone since it was seen.
        with contextlib.suppress(OSError):
            found += [path for name in os.listdir(folder or "/") if (path := f"{folder}/{name}") not in known]
    return found


def split(read: Iterable[str], hidden: Collection[str]) -> tuple[list[str], list[str], list[str]]:
    """Return what is read whole, the folders of which only names are read, and what is read below those.

    A program's folder may hold the workspace, a folder that a person named may hold a secret: neither opens it.
    """
    whole: list[str] = []
    listed: list[str] = []
    parts: list[str] = []
    for path in read:
        real = os.path.realpath(path)
        if any(real == each or real.startswith(f"{each}/") for each in hidden):
            continue
        if any(each.startswith(f"{real.rstrip('/')}/") for each in hidden):
            listed.append(real)
            parts += all_but(real, hidden)
        else:
            whole.append(path)
    return whole, listed, parts


def _is_wanted(name: str, more: Iterable[str]) -> bool:
    if name in more:
        return True
    if any(word in name.upper() for word in SECRET_WORDS):
        return False
    return any(fnmatchcase(name, pattern) for pattern in (*ENV_NAMES, *more))


def _programs(entry: str, home: str) -> list[str]:
    """Return the installation around a folder of PATH, but never a home or what people keep beside programs."""
    if not os.path.isabs(entry) or not os.path.isdir(entry):
        return []
    place = os.path.realpath(entry)
    prefix = os.path.dirname(place)
    home = os.path.realpath(home) if home else "/nonexistent"
    shared = [os.path.normpath(os.path.join(home, name)) for name in _SHARED_PREFIXES]
    if prefix == "/" or prefix in shared or home.startswith(prefix + "/"):
        return [place, *(f"{prefix}/{name}" for name in _PROGRAM_FOLDERS if os.path.isdir(f"{prefix}/{name}"))]
    return [prefix]


def _settings(folder: str, inner: str) -> list[str]:
    """List what is in a folder of settings, without what only its owner should know."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found: list[str] = []
    for name in sorted(names):
        path, below = f"{folder}/{name}", f"{inner}{name}"
        if any(fnmatchcase(below, pattern) for pattern in SECRET_SETTINGS):
            continue
        is_split = any(pattern.startswith(f"{below}/") for pattern in SECRET_SETTINGS)
        found += _settings(path, f"{below}/") if is_split else [path]
    return found
