"""The table of protocols: its rows are the codecs, and what the table says of them is whole."""

from typing import get_args

from treadle.protocols import chat, gemini, messages, responses
from treadle.protocols.protocol_registry import PROTOCOL_NAMES, PROTOCOLS, ProtocolName


def test_every_name_has_the_codec_of_that_name() -> None:
    """The row of each protocol names the functions of its package, for clients and for upstreams."""
    codecs = {"chat": chat, "responses": responses, "messages": messages, "gemini": gemini}
    for name, package in codecs.items():
        row = PROTOCOLS[name]
        found = (row.name, row.codec.read_request, row.codec.encoder, row.codec.write_request, row.codec.decoder)
        assert found == (name, package.read_request, package.Encoder, package.write_request, package.Decoder)
    assert tuple(PROTOCOLS) == PROTOCOL_NAMES == get_args(ProtocolName) == tuple(codecs)


def test_upstreams_are_asked_at_these_paths_with_these_headers() -> None:
    """The row says where below the base URL, which version, and in which header the key goes."""
    shown = {
        name: (row.upstream_path, row.list_path, row.version, row.key_headers("k"), dict(row.headers))
        for name, row in PROTOCOLS.items()
    }
    bearer = {"Authorization": "Bearer k"}
    assert shown == {
        "chat": ("/chat/completions", "/models", "", bearer, {}),
        "responses": ("/responses", "/models", "", bearer, {}),
        "messages": (
            "/messages",
            "/models?limit=1000",
            "v1",
            {"x-api-key": "k"},
            {"anthropic-version": "2023-06-01"},
        ),
        "gemini": (
            "/models/{model}:streamGenerateContent?alt=sse",
            "/models?pageSize=1000",
            "v1beta",
            {"x-goog-api-key": "k"},
            {},
        ),
    }


def test_a_request_is_read_with_the_path_that_it_was_posted_to() -> None:
    """Gemini names the model and whether to stream in the path, the others in the body."""
    row = PROTOCOLS["gemini"]
    body = b'{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}'
    path = "/v1beta/models/tuned%2Fa:streamGenerateContent"
    assert row.posted_path.fullmatch(path)
    request = row.read_posted(f"{path}?alt=sse", body)
    assert (request.model, request.surface.stream) == ("tuned/a", True)
    assert not row.read_posted("/v1beta/models/a:generateContent", body).surface.stream
    asked = PROTOCOLS["chat"].read_posted(
        "/v1/chat/completions", b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
    )
    assert asked.model == "m"


def test_no_path_belongs_to_two_protocols() -> None:
    """Which API a path belongs to is asked for by how it begins, so no beginning may be another's."""
    begins = [(path, row.name) for row in PROTOCOLS.values() for path in row.paths]
    shared = [(a, b) for a, one in begins for b, other in begins if one != other and a.startswith(b)]
    assert shared == []
