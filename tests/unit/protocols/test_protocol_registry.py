from treadle.protocols import chat, gemini, messages, responses
from treadle.protocols import responses as replies
from treadle.protocols.protocol_registry import PROTOCOLS, UPSTREAMS


def test_clients_may_speak_chat_and_responses() -> None:
    """The table maps each name to the codec of that name."""
    table = {name: (entry.name, entry.read_request, entry.encoder) for name, entry in PROTOCOLS.items()}
    assert table["chat"] == ("chat", chat.read_request, chat.Encoder)
    assert table["responses"] == ("responses", responses.read_request, responses.Encoder)
    assert table["messages"] == ("messages", messages.read_request, messages.Encoder)
    assert table["gemini"] == ("gemini", gemini.read_request, gemini.Encoder)


def test_upstreams_are_spoken_to_in_chat_and_responses() -> None:
    """The table names the path below the base URL and both directions of the codec."""
    table = {name: (entry.path, entry.write_request, entry.decoder) for name, entry in UPSTREAMS.items()}
    assert table["chat"] == ("/chat/completions", chat.write_request, chat.Decoder)
    assert table["responses"] == ("/responses", replies.write_request, replies.Decoder)
    assert table["messages"] == ("/messages", messages.write_request, messages.Decoder)
    assert table["gemini"] == (
        "/models/{model}:streamGenerateContent?alt=sse",
        gemini.write_request,
        gemini.Decoder,
    )
