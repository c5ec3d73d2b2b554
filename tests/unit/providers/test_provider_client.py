"""The headers of a request to a provider: what is configured, what the protocol wants, what the client said."""

from collections.abc import Mapping

import pytest

from treadle.core.errors import UpstreamError
from treadle.http.client_errors import ConnectionBroken
from treadle.providers.provider_client import HttpAnswer, HttpClient
from treadle.providers.provider_endpoint import Endpoint, Secret


class Listener(HttpClient):
    """A client that keeps the headers it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: Mapping[str, str] = {}

    async def send(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str
    ) -> HttpAnswer:
        """Send nothing."""
        self.heard = headers
        raise ConnectionBroken


async def sent(configured: dict[str, str], *said: tuple[str, str]) -> dict[str, str]:
    """Return the headers of a request by their names in lower case; each name must be there once."""
    endpoint = Endpoint(
        name="a", base_url="http://127.0.0.1:1", protocol="messages", key=Secret("k-1"), headers=configured
    )
    client = Listener()
    with pytest.raises(UpstreamError):
        await client.post(endpoint, "messages", b"{}", said)
    lowered = {name.lower(): value for name, value in client.heard.items()}
    assert len(lowered) == len(client.heard)
    return lowered


async def test_the_client_s_version_is_forwarded() -> None:
    """Without one the upstream is told the version that Treadle writes."""
    assert (await sent({}))["anthropic-version"] == "2023-06-01"
    assert (await sent({}, ("anthropic-version", "2027-01-01")))["anthropic-version"] == "2027-01-01"


@pytest.mark.parametrize("name", ["anthropic-version", "Anthropic-Version"])
async def test_what_is_configured_goes_before_what_a_client_says(name: str) -> None:
    """An operator who pins a version means it, however the header is spelled."""
    assert (await sent({name: "2025-05-05"}, ("anthropic-version", "2027-01-01")))["anthropic-version"] == "2025-05-05"


async def test_features_of_operator_and_client_go_together() -> None:
    """Each once, the operator's first."""
    headers = await sent({"Anthropic-Beta": "a,b"}, ("anthropic-beta", "b,c"))
    assert headers["anthropic-beta"] == "a,b,c"
    assert (await sent({}, ("anthropic-beta", "c")))["anthropic-beta"] == "c"
