"""No persisted or public word changes by accident: journals, files, scripts and clients out there hold on to them."""

from rules.words import FROZEN, OPENAPI, SECTIONS, collected, frozen
from treadle.server.route_table import write_openapi

RENEW = "PYTHONPATH=tests:src python -m rules.words"
GONE = f"""\
These words are gone, and somebody may use them: keep each as an alias of the new one (or leave it as it was), say so in
CHANGELOG.md, and then run: {RENEW}"""
NEW = f"These words are new: if they are meant, and documented, run: {RENEW}"


def test_no_word_goes_and_none_comes_unseen() -> None:
    """A word that goes needs an alias and a note in CHANGELOG.md; one that comes stays for good."""
    before, now = frozen(), collected()
    assert set(before) == set(SECTIONS), f"run: {RENEW}"
    gone = [f"[{name}] {word}" for name in before for word in sorted(before[name] - now[name])]
    new = [f"[{name}] {word}" for name in now for word in sorted(now[name] - before[name])]
    assert not gone, "\n".join([GONE, *gone, *(f"(new: {word})" for word in new)])
    assert not new, "\n".join([NEW, *new])


def test_every_section_has_words() -> None:
    """A section that finds nothing would guard nothing."""
    assert [name for name, words in collected().items() if len(words) < 5] == []


def test_the_words_that_matter_most_are_found() -> None:
    """One of each kind, looked up by hand."""
    now = collected()
    expected = {
        "entry kinds": "tool_call",
        "columns of SQLite": "runs idempotency_key",
        "columns of PostgreSQL": "leases handed",
        "configuration": "upstream[].base_url",
        "environment": "TREADLE_SERVER__PORT",
        "headers": "x-treadle-fidelity",
        "error codes": "rate_limit_exceeded 429",
        "operations": "POST /v1/responses takes model",
        "routes": "POST /v1/chat/completions",
        "command line": "treadle keys create --budget-usd",
        "library": "Runtime",
        "fields that are read": "code hint message param retry_after_s retryable status",
    }
    assert {name: word for name, word in expected.items() if word not in now[name]} == {}


def test_both_stores_have_the_same_columns() -> None:
    """PostgreSQL's are read from the text of its migrations: what SQLite says of itself shows that none is missed."""
    now = collected()
    assert now["columns of PostgreSQL"] - now["columns of SQLite"] == set()
    more = {word.split()[0] for word in now["columns of SQLite"] - now["columns of PostgreSQL"]}
    assert more == {"blobs", "leases", "messages", "schema_migrations", "spent_tickets"}


def test_the_openapi_document_is_the_same_byte_for_byte() -> None:
    """It is what clients are generated from; `python -m rules.words` writes it anew when a change is meant."""
    assert write_openapi() + b"\n" == OPENAPI.read_bytes(), f"/openapi.json changed: if that is meant, run: {RENEW}"


def test_the_file_is_sorted() -> None:
    """So that a diff shows what changed and nothing else."""
    sections = [part.splitlines() for part in FROZEN.read_text(encoding="utf-8").split("\n\n") if part.strip()]
    assert [lines[0] for lines in sections if lines[1:] != sorted(set(lines[1:]))] == []
