"""Which guarantees the machine can enforce: all that it can are named, the others with the reason."""

import pytest

from treadle.cli.doctor import guarantees
from treadle.cli.doctor.guarantees import GUARANTEES, check_guarantees
from treadle.tools.sandbox import FoundLevel


def test_what_can_be_enforced_is_named() -> None:
    """Each row is either among those that hold, or has a line of its own."""
    first, *lacking = check_guarantees().detail.split("\n")
    for row in GUARANTEES:
        assert (row.name in first) != any(line.startswith(f"not {row.name}: ") for line in lacking)


def test_what_cannot_be_enforced_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without the kernel's help the reason and the sentence that does not hold are there."""
    found = FoundLevel(level=0, missing={"L2": "there is no Landlock", "L3": "there are no user namespaces"})
    monkeypatch.setattr("treadle.tools.sandbox.find_level", lambda: found)
    monkeypatch.setattr(guarantees, "has_syscall", lambda _: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    check = check_guarantees()
    assert check.state == "note"
    assert "not commands.confined: there is no Landlock. A command that a model runs" in check.detail
    assert "not commands.secrets: there are no user namespaces." in check.detail
    assert "not files.root: the kernel has no openat2" in check.detail
