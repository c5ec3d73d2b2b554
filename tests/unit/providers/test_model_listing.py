"""What endpoints say they have."""

import pytest

from treadle.core.ids import CountingIds
from treadle.protocols.protocol_registry import ProtocolName
from treadle.providers.fakes.fake_server import Canned, CannedTable, ScriptServer
from treadle.providers.model_listing import Listing, read_names
from treadle.providers.model_router import ModelInfo, Router
from treadle.providers.provider_client import HttpClient
from treadle.providers.provider_endpoint import Endpoint


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"object":"list","data":[{"id":"a"},{"id":"b"}]}', ["a", "b"]),
        (b'{"data":[{"type":"model","id":"claude"}],"has_more":false}', ["claude"]),
        (b'{"models":[{"name":"models/gemini"}]}', ["gemini"]),
        (b"{}", []),
        (b'[{"id":"a","type":"chat"},{"id":"b"}]', ["a", "b"]),
        (b'{"models":[{"name":"x.gguf","model":"x.gguf"}],"object":"list","data":[{"id":"x.gguf"}]}', ["x.gguf"]),
        (b'{"data":[{"id":"a","name":null},{"id":7},5,null,{"object":"model"},{"id":"b"}],"models":null}', ["a", "b"]),
    ],
)
def test_lists_of_every_protocol_are_read(body: bytes, names: list[str]):
    """OpenAI's, Anthropic's and Gemini's, a bare one, one told twice; an odd entry costs the others nothing."""
    assert read_names(body) == names


@pytest.mark.parametrize(
    ("protocol", "path"), [("chat", "/models"), ("messages", "/models?limit=1000"), ("gemini", "/models?pageSize=1000")]
)
async def test_the_whole_list_is_asked_for(protocol: ProtocolName, path: str):
    """By themselves Anthropic gives the first 20 and Google the first 50."""
    asked: list[str] = []

    class Client(HttpClient):
        async def get(self, endpoint: Endpoint, path: str, timeout_s: float) -> bytes:
            asked.append(path)
            return b"{}"

    up = Endpoint(name="up", base_url="http://127.0.0.1:1/v1", protocol=protocol)
    assert await Listing(Client(), lambda: 1.0).names([up]) == {"up": []}
    assert asked == [path]


async def test_models_are_those_that_the_upstream_lists():
    """A key in the environment is enough to see what there is; two upstreams are told apart by their names."""
    table = CannedTable(models={"big": Canned(), "small": Canned()})
    async with ScriptServer(table) as server:
        one = Endpoint(name="one", base_url=server.url)
        router = Router([one], client=HttpClient(), ids=CountingIds())
        assert await router.list_models() == [
            ModelInfo(id="big", upstream="one"),
            ModelInfo(id="small", upstream="one"),
        ]
        await router.list_models()
        both = Router(
            [one, Endpoint(name="two", base_url=server.url, models=("x",))], client=HttpClient(), ids=CountingIds()
        )
        assert [info.id for info in await both.list_models()] == ["x", "one/big", "one/small"]
        await router.close()
        await both.close()


async def test_an_upstream_that_lists_nothing_harms_nobody():
    """Nobody there: the list is what is known without it."""
    router = Router([Endpoint(name="one", base_url="http://127.0.0.1:1/v1")], client=HttpClient(), ids=CountingIds())
    assert await router.list_models() == []
    await router.close()
