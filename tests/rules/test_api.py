"""The public library does not change by accident: names and signatures are frozen in a file that a reviewer sees."""

from rules.api import FROZEN, documented, write_api


def test_what_is_public_is_what_is_frozen() -> None:
    """`PYTHONPATH=tests python -m rules.api` freezes it anew; CHANGELOG.md then says what changed."""
    assert write_api().splitlines() == FROZEN.read_text(encoding="utf-8").splitlines()


def test_a_program_that_reads_the_documents_uses_few_modules() -> None:
    """Every module that a document imports from becomes public: they stay few, and none is private."""
    modules = set(documented())
    assert len(modules) <= 12, sorted(modules)
    assert [name for name in modules if any(part.startswith("_") for part in name.split("."))] == []
