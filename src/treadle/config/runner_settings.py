"""Settings of the runner that drives background runs. Described as those in `settings`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class RunnerSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who drives runs in the background. Every other run is driven by the process that took it in."""

    kind: Annotated[
        Literal["auto", "process", "claims", "temporal"],
        Meta(
            description='"process": who took it in; "claims": any process with room; "temporal": whom Temporal picks; '
            '"auto": claims on PostgreSQL and with several workers, else process'
        ),
    ] = "auto"
    background_max: Annotated[
        int,
        Meta(ge=0, description="runs in the background that one process drives at once, others wait; 0: no bound"),
    ] = 0
    temporal: Annotated[str, Meta(min_length=1, description="HOST:PORT of Temporal")] = "127.0.0.1:7233"
    namespace: Annotated[str, Meta(min_length=1, description="its namespace")] = "default"
    queue: Annotated[
        str, Meta(min_length=1, description="the task queue that Treadle's processes share; one for each journal")
    ] = "treadle"
    key_env: Annotated[str, Meta(description="the variable that holds the API key for Temporal; empty: none")] = ""
    tls: Annotated[bool, Meta(description="speak TLS to Temporal; always so with an API key")] = False
    heartbeat_s: Annotated[
        float, Meta(ge=1, description="silence of a process before Temporal gives its runs to another")
    ] = 10.0
