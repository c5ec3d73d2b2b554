"""`treadle keys`: a key is printed once, listed with what it used, and revoked; the doctor looks after them."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from store.sample import run_row
from treadle.cli.commands import keys_command as command
from treadle.cli.doctor.check_list import check_keys
from treadle.cli.main import main
from treadle.config import ServerSection, Settings, StoreSection
from treadle.config.access_settings import KeysSection
from treadle.journal.open_store import open_store


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command on a journal of the test's own; return its exit code and what it said."""
    monkeypatch.delenv("TREADLE_SECRET", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["keys", *arguments, "--store", f"sqlite:///{tmp_path}/treadle.db"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_key_is_printed_alone_and_once(keys) -> None:
    """On stdout for scripts, the rest on stderr; lists have its id and its scopes, not itself."""
    code, out, err = keys("create", "ci", "--apis", "chat, responses", "--role", "viewer", "--expires", "30d")
    assert (code, out.count("\n")) == (0, 1)
    assert out.startswith("tr_")
    assert "shown only now" in err
    code, listed, _ = keys("list")
    assert code == 0
    assert out.strip() not in listed
    assert "apis chat,responses; viewer" in listed
    assert listed.rstrip().endswith("1 key")


def test_programs_read_json(keys) -> None:
    """All that was asked for is in it, the key too."""
    arguments = ("--models", "gpt-*", "--tools", "get_*", "--rpm", "5", "--tpm", "6", "--runs", "7")
    _, out, _ = keys(
        "create", "ci", *arguments, "--budget-usd", "2.5", "--budget-tokens", "9", "--period", "day", "--json"
    )
    made = json.loads(out)
    assert made["key"].startswith("tr_")
    assert (made["models"], made["tools"]) == (["gpt-*"], ["get_*"])
    assert made["rates"] == {"requests_per_min": 5, "tokens_per_min": 6, "runs_max": 7}
    assert made["budget"] == {"tokens": 9, "usd": 2.5, "period": "day"}
    assert made["used"]["total"]["runs"] == 0


def test_all_keys_are_listed_however_many(keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read a page at a time."""
    monkeypatch.setattr(command, "LIMIT", 2)
    names = ["ann", "bob", "cat", "dan"]
    for name in names:
        keys("create", name)
    listed = json.loads(keys("list", "--json")[1])["keys"]
    assert [each["name"] for each in listed] == names[::-1]


def test_a_revoked_key_is_listed_only_with_all(keys) -> None:
    """By its name or its id; one that is not there is an error."""
    keys("create", "old")
    assert keys("revoke", "old")[0] == 0
    assert keys("list")[1] == "0 keys, 1 more with --all\n"
    assert "revoked" in keys("list", "--all")[1]
    code, _, err = keys("revoke", "nobody")
    assert (code, "There is no key 'nobody'" in err) == (1, True)


def test_revoking_a_key_asks_for_the_end_of_its_runs(keys, tmp_path: Path) -> None:
    """How many there are is said."""
    key_id = json.loads(keys("create", "old", "--json")[1])["id"]

    async def begin() -> None:
        store = open_store(str(tmp_path / "treadle.db"), clock=time.time)
        await store.open()
        await store.start_run(run_row(key_id=key_id), [], owner="me", lease_s=60)
        await store.close()

    asyncio.run(begin())
    assert keys("revoke", "old")[1] == f"{key_id} (old) is revoked; 1 run of it will be cancelled\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("create", "x", "--expires", "1y"), 2, "no span of time"),
        (("create", "x", "--expires", "999999999w"), 1, "within a hundred years"),
        (("create", "x", "--apis", "chit"), 1, "There is no API 'chit'"),
        (("create", "x", "--rpm", "-1"), 1, "requests_per_min"),
        (("create", " "), 1, "name"),
        (("list",), 1, "there is no journal"),
    ],
)
def test_mistakes_are_told(keys, arguments: tuple[str, ...], code: int, told: str) -> None:
    """Naming what is wrong, and nothing is made."""
    found, _, err = keys(*arguments)
    assert (found, told in err) == (code, True)


@pytest.mark.parametrize(
    ("server", "required", "state", "told"),
    [
        (ServerSection(), "auto", "ok", "not needed"),
        (ServerSection(host="0.0.0.0", allow_remote=True), "never", "note", "asks no program for a key"),
        (ServerSection(host="0.0.0.0", allow_remote=True), "auto", "ok", "people log in"),
        (ServerSection(login="never"), "always", "ok", "can not log in"),
    ],
)
def test_the_doctor_says_who_can_come(server: ServerSection, required: str, state: str, told: str) -> None:
    """Open to strangers is worth knowing."""
    keys = KeysSection(required=required)  # type: ignore[arg-type]
    check = check_keys(Settings(server=server, keys=keys, store=StoreSection(url="sqlite:///x.db")), {})
    assert (check.state, told in check.detail) == (state, True)


def test_the_doctor_finds_keys_that_would_be_forgotten() -> None:
    """Several processes on PostgreSQL must share a secret."""
    settings = Settings(keys=KeysSection(required="always"), store=StoreSection(url="postgresql://u@h/d"))
    assert check_keys(settings, {}).state == "broken"
    assert "TREADLE_SECRET" in check_keys(settings, {}).advice
    assert check_keys(settings, {"TREADLE_SECRET": "s" * 32}).state == "ok"
