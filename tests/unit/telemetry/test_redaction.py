"""What must never be written, wherever it stands in a line."""

import logging
from pathlib import Path

import msgspec
import pytest

from treadle import Runtime, Settings
from treadle.config import StoreSection
from treadle.runtime import Parts
from treadle.telemetry import REDACTED, JsonLines, Redactor


def line(**fields: object) -> dict[str, object]:
    """Return what is written of a record with these fields."""
    record = logging.makeLogRecord({"name": "treadle.x", "levelname": "INFO", "created": 1.0, "msg": "said", **fields})
    text = JsonLines(Redactor(["sk-very-secret"])).format(record)
    assert "\n" not in text
    assert "\r" not in text
    return msgspec.json.decode(text)


def test_secrets_are_blanked_however_deep_they_lie() -> None:
    """By name and by value, in lists, maps, bytes, and in things that only have a repr."""

    class Odd:
        def __repr__(self) -> str:
            return "<Odd sk-very-secret>"

    said = line(
        headers={"Authorization": "Bearer x", "accept": "a\r\nb", "inner": [{"api_key": "k"}]},
        words=("plain", "sk-very-secret"),
        raw=b"sk-very-secret \xff",
        odd=Odd(),
        count=3,
    )
    assert said["headers"] == {"Authorization": REDACTED, "accept": "a\r\nb", "inner": [{"api_key": REDACTED}]}
    assert said["words"] == ["plain", REDACTED]
    assert said["raw"] == f"{REDACTED} \ufffd"
    assert said["odd"] == f"<Odd {REDACTED}>"
    assert said["count"] == 3


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("msg", "with sk-very-secret in it", f"with {REDACTED} in it"),
        ("route", "/sk-very-secret", f"/{REDACTED}"),
        ("last", f"tr_{'a' * 16}_{'b' * 64}", REDACTED),
        ("password", "p", REDACTED),
        ("password", 7, REDACTED),
        ("inner", {"token": "t"}, {"token": REDACTED}),
        ("exc_text", "", None),
    ],
)
def test_one_secret_among_harmless_fields_is_blanked_and_the_others_stay(
    name: str, value: object, written: object
) -> None:
    """A line that has nothing to hide is written as it is; one that has is looked through field by field."""
    usual = {"request_id": "req_1", "status": 200, "duration_s": 0.5, "key_id": "", "limit": None}
    said = line(**usual, **{name: value})
    assert {field: said[field] for field in usual} == usual
    assert said.get("message" if name == "msg" else name) == written


def test_names_that_only_sound_like_a_secret_are_kept() -> None:
    """The id of a key names it, a count of tokens is a number."""
    said = line(key_id="key_1", input_tokens=5, token_name="mine", token="t")
    assert (said["key_id"], said["input_tokens"], said["token_name"]) == ("key_1", 5, "mine")
    assert said["token"] == REDACTED


def test_a_field_cannot_pose_as_a_part_of_every_line() -> None:
    """Whatever a field is called, the line's own parts are its own."""
    said = line(level="critical", at=99.0, logger="forged")
    assert (said["level"], said["at"], said["logger"], said["message"]) == ("info", 1.0, "treadle.x", "said")


def test_the_secrets_of_an_installation_are_known(tmp_path: Path) -> None:
    """Its own secret and the password of Redis, from the environment."""
    env = {"HOME": str(tmp_path), "TREADLE_SECRET": "the-own-secret", "TREADLE_REDIS_PASSWORD": "the-redis-secret"}
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path / 'treadle.db'}"))
    redactor = Runtime(settings, parts=Parts(env=env)).redactor
    assert redactor.text("the-own-secret and the-redis-secret") == f"{REDACTED} and {REDACTED}"
