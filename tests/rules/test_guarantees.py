"""Every guarantee in docs/security.md has tests that exist, and says what enforces it in one sentence."""

import re

from rules.test_requirements import existing
from treadle.cli.doctor.guarantees import GUARANTEES


def test_every_guarantee_has_tests_that_exist() -> None:
    """A test that was renamed or removed leaves a promise without its proof."""
    assert [row.name for row in GUARANTEES if not row.tests] == []
    assert sorted({test for row in GUARANTEES for test in row.tests} - existing()) == []


def test_every_guarantee_is_one_sentence_with_a_name_of_its_own() -> None:
    """Names are for doctor's output; the sentence is for people."""
    names = [row.name for row in GUARANTEES]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z]+\.[a-z_]+", name)] == []
    assert [row.name for row in GUARANTEES if not row.text.endswith(".") or ". " in row.text or not row.by] == []
