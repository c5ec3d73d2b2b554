from treadle.wire import chat, responses
from treadle.wire.protocols import PROTOCOLS, UPSTREAMS


def test_clients_may_speak_chat_and_responses() -> None:
    """The table maps each name to the codec of that name."""
    table = {name: (entry.name, entry.read_request, entry.encoder) for name, entry in PROTOCOLS.items()}
    assert table == {
        "chat": ("chat", chat.read_request, chat.Encoder),
        "responses": ("responses", responses.read_request, responses.Encoder),
    }


def test_upstreams_are_spoken_to_in_chat() -> None:
    """The table names the path below the base URL and both directions of the codec."""
    table = {name: (entry.path, entry.write_request, entry.decoder) for name, entry in UPSTREAMS.items()}
    assert table == {"chat": ("/chat/completions", chat.write_request, chat.Decoder)}
