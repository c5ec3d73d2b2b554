"""The two tables of protocols: which ones clients may speak, which ones Treadle speaks upstream."""

from treadle.protocols import chat, gemini, messages, responses
from treadle.protocols import responses as replies
from treadle.protocols.codec_interfaces import ClientProtocol, UpstreamProtocol

PROTOCOLS: dict[str, ClientProtocol] = {
    "chat": ClientProtocol(name="chat", read_request=chat.read_request, encoder=chat.Encoder),
    "responses": ClientProtocol(name="responses", read_request=responses.read_request, encoder=responses.Encoder),
    "messages": ClientProtocol(name="messages", read_request=messages.read_request, encoder=messages.Encoder),
    "gemini": ClientProtocol(name="gemini", read_request=gemini.read_request, encoder=gemini.Encoder),
}

UPSTREAMS: dict[str, UpstreamProtocol] = {
    "chat": UpstreamProtocol(
        name="chat", path="/chat/completions", write_request=chat.write_request, decoder=chat.Decoder
    ),
    "responses": UpstreamProtocol(
        name="responses", path="/responses", write_request=replies.write_request, decoder=replies.Decoder
    ),
    "messages": UpstreamProtocol(
        name="messages", path="/messages", write_request=messages.write_request, decoder=messages.Decoder
    ),
    "gemini": UpstreamProtocol(
        name="gemini",
        path="/models/{model}:streamGenerateContent?alt=sse",
        write_request=gemini.write_request,
        decoder=gemini.Decoder,
    ),
}
