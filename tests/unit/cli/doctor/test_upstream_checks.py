"""Whom the doctor asks, and whether the model that is wanted is one that is served."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from treadle.cli.doctor.upstream_checks import check_upstreams, list_models
from treadle.config import Settings, Upstream

MODELS = b'{"object":"list","data":[{"id":"qwen3-coder"},{"id":"llama-4"}]}'


@pytest.fixture
def local() -> Iterator[Upstream]:
    """Serve a list of models on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(MODELS)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Upstream(name="up", base_url=f"http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    thread.join()
    server.server_close()


def test_one_elsewhere_is_asked_only_when_that_is_wished() -> None:
    """The network is not touched by a look at this machine."""
    far = Upstream(name="far", base_url="https://models.example.invalid/v1", key_env="FAR_KEY")
    [found] = check_upstreams(Settings(upstream=(far,)), {"FAR_KEY": "x"}, asking="local")
    assert (found.state, found.advice) == ("note", "--online asks it for its models")
    assert found.detail.endswith("FAR_KEY is set, not asked")


def test_one_on_this_machine_is_asked(local: Upstream) -> None:
    """That is how a model server that was not started is found."""
    [found] = check_upstreams(Settings(upstream=(local,)), {}, asking="local")
    assert (found.state, "answers" in found.detail) == ("ok", True)


@pytest.mark.parametrize(
    ("model", "state", "advice"),
    [
        ("qwen3-coder", "ok", ""),
        ("up/llama-4", "ok", ""),
        ("qwen-coder", "note", "did you mean qwen3-coder? (default_model, or -m)"),
        ("zzz", "note", "it has qwen3-coder, llama-4 (default_model, or -m)"),
    ],
)
def test_a_model_that_is_not_listed_is_worth_knowing(model: str, state: str, advice: str, local: Upstream) -> None:
    """With the name that was probably meant."""
    [found] = check_upstreams(Settings(upstream=(local,), default_model=model), {}, asking="all")
    assert (found.state, found.advice) == (state, advice)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (MODELS, ["qwen3-coder", "llama-4"]),
        (b'{"models":[{"name":"models/gemini-3"}]}', ["gemini-3"]),
        (b'{"data":"x"}', []),
        (b"<html>", []),
        (b"", []),
        (b"[]", []),
        (b"\xff", []),
    ],
)
def test_lists_are_read_in_each_manner_and_never_trusted(body: bytes, names: list[str]) -> None:
    """What is no list of models says nothing."""
    assert list_models(body) == names
