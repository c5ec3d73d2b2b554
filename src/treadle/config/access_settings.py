"""Settings of API keys, rates and trusted proxies. Described as those in `settings`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from treadle.protocols.protocol_registry import ProtocolName


class KeysSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of clients. `treadle keys` makes them."""

    required: Annotated[
        Literal["auto", "always", "never"],
        Meta(description='whether programs must bring a key; "auto": where other machines can reach the server'),
    ] = "auto"


class RatesSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much may be asked at a time. 0 sets no bound; what a key says of itself goes before what is said here."""

    requests_per_min: Annotated[
        int, Meta(ge=0, description="requests of a key in a minute; without keys, of an address")
    ] = 0
    tokens_per_min: Annotated[
        int, Meta(ge=0, description="tokens of a key in a minute, counted when a run has ended")
    ] = 0
    runs_max: Annotated[int, Meta(ge=0, description="runs of a key that go on at once in one process")] = 0
    address_requests_per_min: Annotated[
        int, Meta(ge=0, description="requests of one address in a minute, with whatever keys")
    ] = 0
    proxies: Annotated[
        tuple[str, ...], Meta(description='networks whose X-Forwarded-For is believed, such as ["10.0.0.0/8"]')
    ] = ()
    url: Annotated[
        str,
        Meta(description="redis://HOST:PORT/DB or valkey://, where several processes count together; empty: alone"),
    ] = ""
    password_env: Annotated[str, Meta(min_length=1, description="the variable that holds its password")] = (
        "TREADLE_REDIS_PASSWORD"
    )
    replicas: Annotated[
        int, Meta(ge=1, description="processes that count together: while it is away each keeps to its part of a limit")
    ] = 1


class ApiRate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of one API a key may ask, beside its other limits. Several are several `[[rate]]` tables."""

    api: Annotated[Literal[ProtocolName, "treadle", "mcp"], Meta(description="the API it is about")]
    requests_per_min: Annotated[
        int, Meta(ge=1, description="requests of a key in a minute; without keys, of an address")
    ]
