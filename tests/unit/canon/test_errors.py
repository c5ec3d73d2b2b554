import pytest

from treadle.canon import errors
from treadle.canon.errors import ErrorInfo, ProtocolError, TreadleError, UpstreamStatus


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
        (413, 413, False),
        (418, 400, False),
        (422, 400, False),
        (429, 429, True),
        (500, 502, True),
        (503, 503, True),
        (504, 504, True),
        (529, 503, True),
    ],
)
def test_an_upstreams_status_keeps_its_meaning(upstream: int, ours: int, retryable: bool):
    """400 stays 400, our key's 401 is a 502, 429 stays 429, 5xx become 502 or 503."""
    info = UpstreamStatus("no", status=upstream, retry_after_s=3).info
    assert (info.status, info.retryable, info.retry_after_s) == (ours, retryable, 3)
