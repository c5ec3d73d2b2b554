"""The protocols as one table: every fact that differs between them and is no codec is a field of a row here.

Other rooms ask the row and never compare names. A new protocol is a row, its codec, and its routes. A codec is
imported when it is first used, so that a module that only needs a name or a header does not import any.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final, Literal

import msgspec

from treadle.core.ids import COMPLETION, MESSAGE, RESPONSE
from treadle.core.request import Request
from treadle.protocols.codec_interfaces import Codec
from treadle.protocols.translation.upstream_features import SPOKEN_CHOICES, FeatureRule, Traits

ProtocolName = Literal["chat", "responses", "messages", "gemini"]
CHAT: Final = "chat"
RESPONSES: Final = "responses"
MESSAGES: Final = "messages"
GEMINI: Final = "gemini"

Vendor = Literal["openai", "anthropic", "google"]
"""Whose conventions a protocol follows for errors, rate limit headers and lists of models."""

Paths = Mapping[str, str]


class OptionWords(msgspec.Struct, frozen=True, kw_only=True):
    """The options that protocols share under different names, by their paths in a request.

    `meanings` maps a client's field to what it means (of two that mean the same the first counts), `fields` maps a
    meaning to where an upstream reads it, `tiers` maps a word for a tier of service to OpenAI's. `understood` are
    fields that stay in `extra` though typed options mean the same, or that are between the client and Treadle;
    `defaults` are values that ask for what every upstream does anyway.
    """

    meanings: Paths = {}
    fields: Paths = {}
    tiers: Paths = {}
    understood: frozenset[str] = frozenset()
    defaults: Mapping[str, bytes] = {}


class ProtocolRow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One protocol.

    To clients: `paths` are how its routes begin, also for clients that leave out the version; `input_field` holds the
    conversation, `answer_prefix` and `answer_separator` begin the id of an answer. With `has_sequence_numbers` its
    events are numbered from 0 and an item that was broken off can be closed.

    To upstreams: `upstream_path` and `list_path` are appended to the base URL, in which `{model}` stands for the
    model's name, quoted, and `version` ends a base URL that has none. Without a `key_header` the key is a bearer token.
    """

    name: ProtocolName
    vendor: Vendor
    load_codec: Callable[[], Codec]
    paths: tuple[str, ...]
    upstream_path: str
    input_field: str = "messages"
    answer_prefix: str = RESPONSE
    answer_separator: str = "_"
    has_sequence_numbers: bool = False
    list_path: str = "/models"
    version: str = ""
    key_header: str = ""
    headers: Paths = {}
    features: Traits = Traits()
    options: OptionWords = OptionWords()

    @cached_property
    def codec(self) -> Codec:
        """Return how it is read and written, imported now."""
        return self.load_codec()

    @cached_property
    def posted_path(self) -> re.Pattern[str]:
        """Return what matches the paths that requests are posted to; some APIs name the model and a verb there."""
        fixed, model, _ = self.upstream_path.partition("{model}")
        return re.compile("/v1(?:beta)?" + re.escape(fixed) + (r"[^/]+:[^/:]+" if model else ""))

    def key_headers(self, key: str, header: str | None = None) -> dict[str, str]:
        """Return the header in which an upstream takes its key: this one, or the protocol's own."""
        name = header or self.key_header
        return {name: key} if name else {"Authorization": f"Bearer {key}"}

    def read_posted(self, path: str, body: bytes) -> Request:
        """Read a request together with the path that it was posted to.

        Raises: ProtocolError.
        """
        read = self.codec.read_posted
        return self.codec.read_request(body) if read is None else read(path, body)


_OPENAI_MEANINGS: Paths = {"safety_identifier": "user", "user": "user", "service_tier": "tier"}
_OPENAI_TIERS: Paths = {name: name for name in ("auto", "default", "flex", "priority", "scale")}


def _chat() -> Codec:
    from treadle.protocols import chat

    return Codec(
        read_request=chat.read_request,
        encoder=chat.Encoder,
        write_request=chat.write_request,
        decoder=chat.Decoder,
        choices_encoder=chat.Choices,
    )


def _responses() -> Codec:
    from treadle.protocols import responses

    return Codec(
        read_request=responses.read_request,
        encoder=responses.Encoder,
        write_request=responses.write_request,
        decoder=responses.Decoder,
    )


def _messages() -> Codec:
    from treadle.protocols import messages

    return Codec(
        read_request=messages.read_request,
        encoder=messages.Encoder,
        write_request=messages.write_request,
        decoder=messages.Decoder,
    )


def _gemini() -> Codec:
    from treadle.protocols import gemini

    return Codec(
        read_request=gemini.read_request,
        encoder=gemini.Encoder,
        write_request=gemini.write_request,
        decoder=gemini.Decoder,
        choices_encoder=gemini.Candidates,
        read_posted=gemini.read_posted,
    )


_ROWS = (
    ProtocolRow(
        name=CHAT,
        vendor="openai",
        load_codec=_chat,
        paths=("/v1/chat", "/chat"),
        upstream_path="/chat/completions",
        answer_prefix=COMPLETION,
        answer_separator="-",
        # The codec itself moves the files of results into a user message, so `has_result_files` stays.
        features=Traits(choices=SPOKEN_CHOICES),
        options=OptionWords(
            meanings={
                **_OPENAI_MEANINGS,
                "top_k": "top_k",
                "frequency_penalty": "frequency_penalty",
                "presence_penalty": "presence_penalty",
            },
            # No top_k: OpenAI refuses fields that it does not know.
            fields={
                "user": "user",
                "tier": "service_tier",
                "frequency_penalty": "frequency_penalty",
                "presence_penalty": "presence_penalty",
            },
            tiers=_OPENAI_TIERS,
            understood=frozenset({"max_tokens", "stream_options"}),
            defaults={
                "logprobs": b"false",
                "top_logprobs": b"0",
                "service_tier": b'"auto"',
                "modalities": b'["text"]',
            },
        ),
    ),
    ProtocolRow(
        name=RESPONSES,
        vendor="openai",
        load_codec=_responses,
        paths=("/v1/responses", "/responses", "/v1/conversations", "/conversations"),
        upstream_path="/responses",
        input_field="input",
        has_sequence_numbers=True,
        features=Traits(
            choices=SPOKEN_CHOICES,
            has_custom_tools=True,
            has_namespaces=True,
            has_developer=True,
            has_hosted_items=True,
            # An unset `strict` makes the API promote a schema, which turns optional fields into required ones.
            unset_strict=False,
        ),
        options=OptionWords(
            meanings=_OPENAI_MEANINGS,
            fields={"user": "user", "tier": "service_tier"},
            tiers=_OPENAI_TIERS,
            understood=frozenset(
                {
                    "reasoning.effort",
                    "text.format",
                    "include.reasoning.encrypted_content",
                    "max_tool_calls",
                    "conversation",
                    "stream_options",
                }
            ),
            defaults={"truncation": b'"disabled"', "top_logprobs": b"0", "service_tier": b'"auto"'},
        ),
    ),
    ProtocolRow(
        name=MESSAGES,
        vendor="anthropic",
        load_codec=_messages,
        paths=("/v1/messages", "/messages"),
        upstream_path="/messages",
        answer_prefix=MESSAGE,
        # Without a limit the list has only 20 models.
        list_path="/models?limit=1000",
        version="v1",
        key_header="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
        features=Traits(choices=SPOKEN_CHOICES, call_ids=FeatureRule(), has_late_system=False),
        options=OptionWords(
            meanings={"metadata": "user", "service_tier": "tier", "top_k": "top_k"},
            fields={"user": "metadata.user_id", "tier": "service_tier", "top_k": "top_k"},
            tiers={"auto": "auto", "standard_only": "default"},
            understood=frozenset(
                {
                    "system.type",
                    "system.text",
                    "thinking.type",
                    "thinking.budget_tokens",
                    "output_config.effort",
                    "output_config.format",
                }
            ),
            defaults={"service_tier": b'"auto"'},
        ),
    ),
    ProtocolRow(
        name=GEMINI,
        vendor="google",
        load_codec=_gemini,
        paths=("/v1beta", "/v1/tunedModels", "/tunedModels"),
        upstream_path="/models/{model}:streamGenerateContent?alt=sse",
        input_field="contents",
        # Without a size the list has only 50 models.
        list_path="/models?pageSize=1000",
        version="v1beta",
        key_header="x-goog-api-key",
        features=Traits(
            names=FeatureRule(first="a-zA-Z_"),
            call_ids=FeatureRule(),
            schemas="gemini",
            has_strict=False,
            has_parallel_flag=False,
            has_late_system=False,
        ),
        options=OptionWords(
            meanings={
                "serviceTier": "tier",
                "generationConfig.topK": "top_k",
                "generationConfig.frequencyPenalty": "frequency_penalty",
                "generationConfig.presencePenalty": "presence_penalty",
            },
            fields={
                "tier": "serviceTier",
                "top_k": "generationConfig.topK",
                "frequency_penalty": "generationConfig.frequencyPenalty",
                "presence_penalty": "generationConfig.presencePenalty",
            },
            tiers={"unspecified": "auto", "standard": "default", "flex": "flex", "priority": "priority"},
            understood=frozenset(
                {
                    "generationConfig.thinkingConfig.thinkingLevel",
                    "generationConfig.thinkingConfig.thinkingBudget",
                    "generationConfig.thinkingConfig.includeThoughts",
                    "toolConfig.functionCallingConfig.mode",
                }
            ),
            defaults={"generationConfig.responseLogprobs": b"false", "generationConfig.logprobs": b"0"},
        ),
    ),
)

PROTOCOLS: Mapping[str, ProtocolRow] = {row.name: row for row in _ROWS}
PROTOCOL_NAMES: tuple[ProtocolName, ...] = tuple(row.name for row in _ROWS)
OPENAI_PROTOCOLS: frozenset[str] = frozenset(row.name for row in _ROWS if row.vendor == "openai")
"""The protocols of OpenAI: they spell most options and parts alike, and have annotations of a text."""


def has_sequence_numbers(protocol: str) -> bool:
    """Return whether the events of an answer are numbered from 0; those of Treadle's own API are not."""
    row = PROTOCOLS.get(protocol)
    return row is not None and row.has_sequence_numbers
