"""The table of protected paths: what is in it, and which spellings of a name are that name."""

import pytest

from treadle.tools.sandbox.protected_paths import PROTECTED, SHOWN, find_protected, folded, is_allowed


@pytest.mark.parametrize(
    "name", [".git", ".GIT", ".git ", ".git.", ".git. .", ".git::$INDEX_ALLOCATION", "git~1", "GIT~1"]
)
def test_a_name_is_folded_as_the_least_particular_disk_would(name: str) -> None:
    """Case, what Windows drops, what HFS+ ignores."""
    assert folded(name) == ".git"
    assert folded("\u200d.g\u200ci\ufefft") == ".git"
    assert folded("\uff0egit") == ".git"


@pytest.mark.parametrize(
    "path", ["a.git", ".gitx", "git", ".github2/x", "treadle.toml.md", ". git", "fish/.configx", "..."]
)
def test_other_names_are_free(path: str) -> None:
    """Whatever they begin with."""
    assert find_protected(path) is None


def test_every_row_is_found_wherever_it_stands_and_says_why() -> None:
    """Below any folder, as a folder itself, in any case."""
    for row in PROTECTED:
        for path in (row.name, f"a/b/{row.name}", f"{row.name}/x/y", f"a/{row.name.upper()}"):
            assert find_protected(path) is not None, path
        assert row.why
    assert len({row.name for row in PROTECTED}) == len(PROTECTED)
    assert not [name for name in SHOWN if find_protected(name)]


def test_what_is_allowed_is_that_path_and_what_lies_in_it() -> None:
    """Not what only begins alike."""
    assert [is_allowed(path, ["a/b"]) for path in ("a/b", "a/b/c", "a/bc", "a")] == [True, True, False, False]


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".vimrc",
            ".exrc",
            ".nvim.lua",
            ".dir-locals.el",
            ".zed/tasks.json",
            "mise.toml",
            ".mise.toml",
            ".mise/config.toml",
        ),
        *(
            "lefthook.yml",
            ".lefthook-local.toml",
            "Jenkinsfile",
            ".travis.yml",
            ".gitlab-ci.yml",
            ".circleci/config.yml",
        ),
        *(".windsurf/rules/a.md", ".windsurfrules", ".kiro/steering/a.md", "AGENTS.override.md", "GEMINI.md"),
        *(".gemini/settings.json", ".codex/config.toml", ".husky/pre-commit", ".pre-commit-config.yaml"),
    ],
)
def test_what_editors_hooks_builds_and_agents_obey_is_protected(path: str) -> None:
    """Named one by one, so that no row gets lost."""
    assert find_protected(path) is not None
    assert find_protected(f"deep/{path.upper()}") is not None
