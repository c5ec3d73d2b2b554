"""The one table of protected paths: files that other programs execute or obey, with the rights of a person.

The file tools refuse to write them, the sandbox keeps commands from writing them (`guard`), and the table in
docs/sandbox.md is made from it. Standard library only; no state.
"""

import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

GIT = ".git"
BLOCKED = ".blocked"
"""What is put behind the name of a protected path that a command made: no program looks for that."""


class Protected(NamedTuple):
    """One name and why it is protected. `name` may be several names deep.

    `is_held`: while it is absent, a command sees an empty read-only folder there, so that it cannot be made. The
    others break a common program when they are a folder; those are moved aside after the command.
    """

    name: str
    why: str
    is_held: bool = True


_GIT_WHY = "git runs hooks, filters, pagers and monitors that it names"
_SHELL_WHY = "a shell runs it when it starts"
_EDITOR_WHY = "an editor runs tasks and settings in it"
_MISE_WHY = "mise runs hooks and takes programs and variables from it"
_AGENT_WHY = "coding agents obey it"
_PACKAGE_WHY = "a package manager takes its registry and programs from it"

PROTECTED = (
    Protected(GIT, _GIT_WHY),
    Protected(".gitattributes", "git chooses filters and diff programs by it", is_held=False),
    Protected(".gitmodules", "git takes addresses and commands of submodules from it", is_held=False),
    Protected("treadle.toml", "Treadle takes its tools, programs and permissions from it"),
    Protected(".treadle", "Treadle keeps its secrets and journal in it"),
    Protected("treadle/trusted.json", "Treadle keeps here what a person trusted"),
    Protected("treadle/allowed.json", "Treadle keeps here what a person allowed"),
    *(
        Protected(name, _SHELL_WHY)
        for name in (
            *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
            *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login"),
            *(".config/fish", ".config/git", ".gitconfig", ".ssh", ".config/autostart", ".config/systemd"),
        )
    ),
    Protected(".envrc", "direnv runs it when a shell enters the folder"),
    *(Protected(name, _MISE_WHY, is_held=False) for name in ("mise.toml", ".mise.toml", "mise.local.toml")),
    *(Protected(name, _MISE_WHY) for name in (".mise", ".config/mise")),
    *(Protected(name, _EDITOR_WHY) for name in (".vscode", ".idea", ".zed", ".fleet")),
    *(Protected(name, _EDITOR_WHY, is_held=False) for name in (".vimrc", ".exrc", ".nvimrc", ".nvim.lua")),
    *(Protected(name, _EDITOR_WHY, is_held=False) for name in (".dir-locals.el", ".dir-locals-2.el")),
    Protected(".devcontainer", "an editor builds and starts a container by it"),
    Protected(".github", "GitHub runs the workflows in it"),
    *(Protected(name, "GitLab runs the jobs in it") for name in (".gitlab-ci.yml", ".gitlab-ci.yaml")),
    Protected(".circleci", "CircleCI runs the jobs in it"),
    Protected(".travis.yml", "Travis CI runs the jobs in it"),
    Protected("Jenkinsfile", "Jenkins runs the stages in it"),
    Protected(".pre-commit-config.yaml", "pre-commit runs the hooks that it names"),
    *(
        Protected(f"{dot}lefthook{local}.{kind}", "lefthook runs the commands in it", is_held=False)
        for dot in ("", ".")
        for local in ("", "-local")
        for kind in ("yml", "yaml", "toml", "json")
    ),
    Protected(".husky", "git runs the hooks in it"),
    Protected(".githooks", "git runs the hooks in it, where it is told so"),
    *(Protected(name, _AGENT_WHY) for name in ("AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md")),
    *(Protected(name, _AGENT_WHY) for name in ("GEMINI.md", ".cursor", ".cursorrules", ".clinerules")),
    *(Protected(name, _AGENT_WHY) for name in (".windsurf", ".windsurfrules", ".kiro", ".codex", ".gemini")),
    *(Protected(name, _AGENT_WHY) for name in (".claude", ".opencode", ".aider.conf.yml")),
    Protected(".mcp.json", "coding agents start the servers that it names"),
    *(Protected(name, _PACKAGE_WHY, is_held=False) for name in (".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs")),
)

SHOWN = {
    "makefile": "make runs what it says",
    "gnumakefile": "make runs what it says",
    "justfile": "just runs what it says",
    "package.json": "npm runs its scripts",
}
"""Files that run things too and are the daily work of tools all the same: only the question names them."""

_PARTS = tuple((tuple(each.name.casefold().split("/")), each) for each in PROTECTED)
# HFS+ ignores these in names, so `.g\u200cit` is `.git` on such a disk (CVE-2014-9390).
_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF],
)


def folded(name: str) -> str:
    """Return a name as the disk that is least particular would compare it: case, ignored signs, what Windows drops."""
    plain = unicodedata.normalize("NFKC", name.translate(_IGNORED)).casefold().partition(":")[0].rstrip(". ")
    return GIT if plain == "git~1" else plain or name


def find_protected(path: str) -> Protected | None:
    """Return the row that protects a path below a folder, wherever its name stands in it."""
    names = tuple(folded(each) for each in path.split("/") if each not in ("", "."))
    for at in range(len(names)):
        for parts, row in _PARTS:
            if names[at : at + len(parts)] == parts:
                return row
    return None


def is_allowed(path: str, allowed: Iterable[str]) -> bool:
    """Return whether a path is one of those that a person allowed by name, or lies in one of them."""
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in allowed)
