"""The READMEs of the source: one for every folder that needs a map, and true wherever its modules move."""

from rules.readmes import folders, left_over, stale, write_readme
from rules.tree import SOURCE, shown

LINES_MAX = 45
"""A map that is longer than a screen is no map: the folder holds too much."""


def test_every_readme_is_what_the_docstrings_say() -> None:
    """`PYTHONPATH=tests python -m rules.generated` writes them anew; what they say belongs into the docstrings."""
    assert [shown(path) for path in stale()] == []


def test_no_readme_is_left_in_a_folder_without_modules() -> None:
    """As happens when its modules move."""
    assert [shown(path) for path in left_over()] == []


def test_every_readme_is_short() -> None:
    """Who wants more reads the modules."""
    lines = {shown(folder): len(write_readme(folder).splitlines()) for folder in folders()}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}


def test_a_readme_names_modules_and_packages_with_what_they_are_for() -> None:
    """Each by the first sentence of its docstring."""
    text = write_readme(SOURCE / "runtime")
    assert text.startswith("# runtime\n\nBuilds everything a process needs from its settings.")
    assert "\n| `runtime.py` | " in text
    assert [line for line in text.splitlines() if line.endswith("|  |")] == []
