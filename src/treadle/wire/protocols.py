"""The two tables of protocols: which ones clients may speak, which ones Treadle speaks upstream."""

from treadle.wire import chat, responses
from treadle.wire.codec import ClientProtocol, UpstreamProtocol

PROTOCOLS: dict[str, ClientProtocol] = {
    "chat": ClientProtocol(name="chat", read_request=chat.read_request, encoder=chat.Encoder),
    "responses": ClientProtocol(name="responses", read_request=responses.read_request, encoder=responses.Encoder),
}

UPSTREAMS: dict[str, UpstreamProtocol] = {
    "chat": UpstreamProtocol(
        name="chat", path="/chat/completions", write_request=chat.write_request, decoder=chat.Decoder
    ),
}
