"""Settings of exported telemetry. Described as those in `settings`."""

from typing import Annotated

import msgspec
from msgspec import Meta


class TelemetrySection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry spans of runs, model calls, tools and approvals. Nothing is sent unless `spans` is on."""

    spans: Annotated[bool, Meta(description="send spans; needs treadle[otel]")] = False
    otlp_endpoint: Annotated[
        str, Meta(description="where a collector takes OTLP over HTTP; empty is OTEL_EXPORTER_OTLP_ENDPOINT")
    ] = ""
    service_name: Annotated[str, Meta(min_length=1, description="what Treadle is called there")] = "treadle"
