import re

import pytest

from treadle.core import errors
from treadle.core.errors import (
    CROWDED,
    STORE_MESSAGES,
    BrokenStream,
    CircuitOpen,
    ErrorInfo,
    Exhausted,
    ProtocolError,
    StoreError,
    TreadleError,
    UpstreamError,
    UpstreamStatus,
    UpstreamTimeout,
)

DRAWN = dict(re.findall(r"^ +(\w+) +(\d{3}) ", errors.__doc__ or "", re.MULTILINE))
"""The statuses that the tree draws, by class."""


def walk(cls: type) -> list[type]:
    """Return a class and all below it."""
    return [cls, *(found for child in cls.__subclasses__() for found in walk(child))]


def test_every_error_is_drawn_in_the_tree():
    """The tree at the top of the module names each class."""
    here = [cls for cls in walk(TreadleError) if cls.__module__ == errors.__name__]
    assert [cls.__name__ for cls in here if cls.__name__ not in (errors.__doc__ or "")] == []


def test_an_error_is_data_too():
    """Everything an envelope needs is in the info."""
    error = ProtocolError("must be text", param="messages[0].content", hint="send a string")
    assert error.info == ErrorInfo(
        code="invalid_value", message="must be text", status=400, param="messages[0].content", hint="send a string"
    )


@pytest.mark.parametrize(
    ("upstream", "ours", "retryable"),
    [
        (400, 400, False),
        (401, 502, False),
        (403, 502, False),
        (404, 404, False),
        (408, 504, True),
        (409, 400, True),
        (413, 413, False),
        (418, 400, False),
        (410, 400, False),
        (422, 400, False),
        (499, 400, False),
        (429, 429, True),
        (500, 502, True),
        (503, 503, True),
        (501, 502, True),
        (504, 504, True),
        (529, 503, True),
    ],
)
def test_an_upstreams_status_keeps_its_meaning(upstream: int, ours: int, retryable: bool):
    """400 stays 400, our key's 401 is a 502, 429 stays 429, 5xx become 502 or 503."""
    info = UpstreamStatus("no", status=upstream, retry_after_s=3).info
    assert (info.status, info.retryable, info.retry_after_s) == (ours, retryable, 3)


@pytest.mark.parametrize(("name", "status"), DRAWN.items())
def test_every_error_has_the_status_that_the_tree_draws(name: str, status: str):
    """A client sees what is documented there."""
    assert getattr(errors, name).status == int(status)


def test_what_has_no_status_of_its_own_has_its_parents():
    """A tool's error is no failure of the request, and the root is a failure of ours."""
    assert len(DRAWN) == 16
    others = {cls.__name__: cls.status for cls in walk(TreadleError) if cls.__module__ == errors.__name__}
    tools = {cls.__name__ for cls in walk(errors.ToolError) if cls.__module__ == errors.__name__}
    assert {name for name, status in others.items() if status == 200} == tools
    assert {name for name, status in others.items() if status == 500} == {"TreadleError", "ConfigError"}


def test_an_error_says_its_message_as_any_exception_does():
    """Logs and tracebacks show it, whatever else the class keeps."""
    made = [
        ProtocolError("no"),
        Exhausted("no"),
        UpstreamStatus("no", status=500),
        CircuitOpen("no"),
    ]
    assert [(str(error), error.operator_info.message) for error in made] == [("no", "no")] * len(made)


def test_clients_are_told_less_of_the_store_than_operators():
    """The code decides the words of clients; the place and what to do there is for who runs the process."""
    error = StoreError("the store /srv/x.db: full", code="store_full", hint="free /srv")
    assert (error.operator_info.message, error.operator_info.hint) == ("the store /srv/x.db: full", "free /srv")
    assert (error.info.message, error.info.hint) == (
        "The disk of the journal is full.",
        "Try again in a moment; the log of the server says more.",
    )
    assert StoreError("x", code="store_from_a_newer_version").info.message == STORE_MESSAGES["store_unavailable"]


class Derived(StoreError):
    """What another room makes of a failure of the store."""

    code = "derived"


def test_only_operators_are_told_where_the_store_is():
    """Its message is for logs and the command line; clients get the words of its code, and a derived error its own."""
    error = StoreError("the store /data/a.db: it is full", code="store_full", hint="free some space")
    lines = [(info.message, info.hint) for info in (error.info, error.operator_info)]
    assert lines == [
        ("The disk of the journal is full.", "Try again in a moment; the log of the server says more."),
        ("the store /data/a.db: it is full", "free some space"),
    ]
    assert str(error) == "the store /data/a.db: it is full"
    unknown = StoreError("the store /data/a.db: odd", code="store_odd").info
    assert (unknown.code, unknown.message) == ("store_odd", "The journal cannot be reached just now.")
    derived = Derived("an entry differs", hint="look at it").info
    assert (derived.code, derived.message, derived.hint) == ("derived", "an entry differs", "look at it")


@pytest.mark.parametrize(
    ("error", "status", "retryable", "after"),
    [
        (Exhausted("slower", retry_after_s=7), 429, True, 7),
        (Exhausted("the budget is spent", code="insufficient_quota"), 429, False, None),
        (CircuitOpen("resting", retry_after_s=30), 503, True, 30),
        (CircuitOpen("resting"), 503, True, None),
        (UpstreamTimeout("silent"), 504, True, None),
        (UpstreamTimeout("too many calls are under way", code=CROWDED), 503, True, None),
        (UpstreamError("failed"), 502, True, None),
        (BrokenStream("ended in the middle"), 502, True, None),
        (StoreError("away"), 503, True, 1.0),
        (StoreError("damaged", code="store_corrupt"), 503, False, None),
        (ProtocolError("must be text"), 400, False, None),
        (TreadleError("a bug"), 500, False, None),
    ],
)
def test_an_error_says_whether_and_when_to_ask_again(
    error: TreadleError, status: int, retryable: bool, after: float | None
):
    """What comes back by itself may be asked for again; what is spent or broken may not."""
    info = error.info
    assert (info.status, info.retryable, info.retry_after_s) == (status, retryable, after)


def test_what_is_given_with_an_error_is_told():
    """Codes and hints of one error replace those of its class, and reach the client."""
    exhausted = Exhausted("the budget is spent", code="insufficient_quota").info
    refused = UpstreamStatus("no", status=404, code="model_not_found", hint="see GET /v1/models").info
    resting = CircuitOpen("resting", hint="wait").info
    assert [(info.code, info.hint) for info in (exhausted, refused, resting)] == [
        ("insufficient_quota", None),
        ("model_not_found", "see GET /v1/models"),
        ("upstream_circuit_open", "wait"),
    ]
