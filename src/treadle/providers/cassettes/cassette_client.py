"""The HTTP client with cassettes: replays some endpoints from recordings, and can record every call."""

import asyncio
from collections.abc import Mapping

from treadle.core.json import write_json
from treadle.providers.cassettes.playback import Player
from treadle.providers.cassettes.recorder import RecordedAnswer, Recorder
from treadle.providers.provider_client import RESPONSE_BYTES_MAX, HttpAnswer, HttpClient
from treadle.providers.provider_endpoint import Endpoint


class CassetteClient(HttpClient):
    """Replays the endpoints that have a player; sends everything else to the network. Both can be recorded."""

    def __init__(
        self,
        *,
        players: Mapping[str, Player] | None = None,
        recorder: Recorder | None = None,
        connections_max: int = 1_000,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        env_proxies: bool = False,
    ) -> None:
        super().__init__(
            connections_max=connections_max, env_proxies=env_proxies, response_bytes_max=response_bytes_max
        )
        self._players = dict(players or {})
        self._recorder = recorder

    async def send(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str
    ) -> HttpAnswer:
        """Send one request, or replay it.

        Raises: OSError; BrokenStream if the cassette has no matching call.
        """
        if self._recorder is None:
            return await self._answer(endpoint, path, body, headers, run_id)
        recording = self._recorder.begin(endpoint, path, body, headers, run_id)
        try:
            answer = await self._answer(endpoint, path, body, headers, run_id)
        except OSError as error:
            recording.end("timeout" if isinstance(error, TimeoutError) else "refused")
            raise
        except asyncio.CancelledError:
            recording.end("closed")
            raise
        recording.answer(answer.status, answer.headers)
        return RecordedAnswer(inner=answer, recording=recording)

    async def get(self, endpoint: Endpoint, path: str, timeout_s: float) -> bytes:
        """Fetch something small; a cassette only has the list of its models.

        Raises: UpstreamError.
        """
        player = self._players.get(endpoint.name)
        if player is None:
            return await super().get(endpoint, path, timeout_s)
        return write_json({"object": "list", "data": [{"id": name} for name in player.cassette.models]})

    async def _answer(
        self, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str
    ) -> HttpAnswer:
        player = self._players.get(endpoint.name)
        if player is None:
            return await super().send(endpoint, path, body, headers, run_id)
        return await player.send(path, body)
