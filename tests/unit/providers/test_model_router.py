"""Routing: which upstream a model's name goes to, and what it is called there."""

from collections.abc import AsyncGenerator

import pytest

from treadle.core.errors import ConfigError, NotFound
from treadle.core.events import Finished, ModelEvent
from treadle.core.ids import CountingIds
from treadle.core.plan import Plan
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.model_router import ModelInfo, ModelRoute, Router, match_pattern
from treadle.providers.provider_client import HttpClient
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.resilience import GuardedModel


class Echo:
    """A model of this process that only ends."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        yield [Finished(stop="done")]


def upstream(name: str, *models: str) -> Endpoint:
    """Return an endpoint that claims these models."""
    return Endpoint(name=name, base_url=f"https://{name}.example/v1", models=models)


def router(*endpoints: Endpoint, **fields: object) -> Router:
    """Return a router over these endpoints."""
    return Router(endpoints, client=HttpClient(), ids=CountingIds(), **fields)  # type: ignore[arg-type]


def target(router: Router, name: str) -> tuple[str, str]:
    """Return which endpoint a name goes to, and what it is called there."""
    model = router.model_for(name)
    assert isinstance(model, GuardedModel)
    return model.first.endpoint.name, model.first.name


OPENAI = upstream("openai", "gpt-5", "gpt-*")
ANTHROPIC = upstream("anthropic", "claude-*")
ROUTER = upstream("openrouter", "*")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-5", ("openai", "gpt-5")),
        ("gpt-4o", ("openai", "gpt-4o")),
        ("claude-x", ("anthropic", "claude-x")),
        ("llama", ("openrouter", "llama")),
    ],
)
def test_an_endpoint_claims_names_by_its_patterns(name, expected):
    """The most exact pattern wins, whatever the order of the endpoints."""
    assert target(router(ROUTER, OPENAI, ANTHROPIC), name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai/o9", ("openai", "o9")),
        ("anthropic/other", ("anthropic", "other")),
        ("openai/a/b", ("openai", "a/b")),
    ],
)
def test_a_prefix_names_the_upstream_and_is_stripped(name, expected):
    """A name that nothing claims goes to the upstream that prefixes it, without the prefix."""
    assert target(router(OPENAI, ANTHROPIC), name) == expected


def test_the_only_upstream_takes_every_name_as_it_is():
    """With one upstream there is nothing to choose, and a foreign prefix is part of the name."""
    only = router(upstream("openrouter"))
    assert target(only, "anthropic/claude") == ("openrouter", "anthropic/claude")
    assert target(only, "openrouter/auto") == ("openrouter", "auto")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fast", ("openai", "gpt-5-mini")),
        ("my-haiku", ("anthropic", "claude-haiku-latest")),
        ("gpt-5", ("anthropic", "gpt-5")),
    ],
)
def test_routes_come_first_and_may_rename(name, expected):
    """A route beats an endpoint's own claim; the star of its new name is what the star of the old one took."""
    routes = [
        ModelRoute(model="fast", upstream="openai", rename="gpt-5-mini"),
        ModelRoute(model="my-*", upstream="anthropic", rename="claude-*-latest"),
        ModelRoute(model="gpt-5", upstream="anthropic"),
        ModelRoute(model="*", upstream="openai"),
    ]
    assert target(router(OPENAI, ANTHROPIC, routes=routes), name) == expected


def test_models_of_this_process_route_like_upstreams():
    """The demo answers to its own name, as a prefix, by a route, and to any name where it is alone."""
    demo = Echo()
    alone = router(models={"demo": demo})
    assert [alone.model_for(name) for name in ("demo", "demo/x", "gpt-5", "")] == [demo] * 4
    beside = router(OPENAI, models={"demo": demo}, routes=[ModelRoute(model="d-*", upstream="demo")])
    assert beside.model_for("d-1") is demo
    assert target(beside, "unclaimed") == ("openai", "unclaimed")


def test_an_empty_name_means_the_default():
    """The configured default stands in, else the first model that has a name."""
    assert target(router(OPENAI, ANTHROPIC, default="claude-x"), "") == ("anthropic", "claude-x")
    assert target(router(ANTHROPIC, OPENAI), "") == ("openai", "gpt-5")
    with pytest.raises(NotFound, match="names no model, and there is no default"):
        router(upstream("bare")).model_for("")


def test_an_unknown_name_is_not_found_and_the_nearest_are_named():
    """The error is a 404 on `model` that says what to write instead."""
    with pytest.raises(NotFound) as caught:
        router(upstream("openai", "gpt-5", "gpt-5-mini"), upstream("other", "llama")).model_for("gtp-5")
    info = caught.value.info
    assert (info.status, info.code, info.param) == (404, "model_not_found", "model")
    assert info.message == "no upstream serves the model 'gtp-5'"
    assert info.hint == (
        "nearest known models: gpt-5, gpt-5-mini; any model of an upstream can be asked as UPSTREAM/MODEL, "
        "for example openai/gtp-5"
    )


def test_without_upstreams_the_hint_says_how_to_get_one():
    """An empty router names no model that does not exist."""
    with pytest.raises(NotFound) as caught:
        router().model_for("gpt-5")
    assert caught.value.hint == "no upstream is configured: set a provider's key, or add one to treadle.toml"


def test_a_monstrous_name_is_cut_in_the_error():
    """A name of a megabyte is neither compared nor repeated in full."""
    with pytest.raises(NotFound) as caught:
        router(OPENAI, ANTHROPIC).model_for("x" * 1_000_000)
    assert len(caught.value.message) + len(caught.value.hint or "") < 500


def test_models_lists_names_without_patterns_default_first():
    """The list holds each name once, from routes, this process and endpoints."""
    routes = [ModelRoute(model="fast", upstream="openai"), ModelRoute(model="x-*", upstream="openai")]
    listing = router(
        OPENAI, upstream("other", "llama", "gpt-5"), routes=routes, models={"demo": Echo()}, default="llama"
    ).models()
    assert listing == [
        ModelInfo(id="llama", upstream="other"),
        ModelInfo(id="fast", upstream="openai"),
        ModelInfo(id="demo", upstream="demo"),
        ModelInfo(id="gpt-5", upstream="openai"),
    ]


@pytest.mark.parametrize(
    ("endpoints", "fields", "words"),
    [
        ((OPENAI, OPENAI), {}, "two upstreams are named 'openai'"),
        ((OPENAI,), {"models": {"openai": Echo()}}, "two upstreams are named 'openai'"),
        ((OPENAI,), {"routes": [ModelRoute(model="a", upstream="nowhere")]}, "unknown upstream 'nowhere'"),
        ((OPENAI,), {"routes": [ModelRoute(model="a**", upstream="openai")]}, "at most one"),
    ],
)
def test_a_table_that_cannot_work_is_refused(endpoints, fields, words):
    """Twins and routes to nowhere are config errors, not surprises at the first request."""
    with pytest.raises(ConfigError, match=words):
        router(*endpoints, **fields)


@pytest.mark.parametrize(
    ("pattern", "name", "taken"),
    [
        ("a", "a", ""),
        ("a", "b", None),
        ("*", "", ""),
        ("a*", "abc", "bc"),
        ("*c", "abc", "ab"),
        ("a*c", "abc", "b"),
        ("ab*bc", "abc", None),
        ("a[b]*", "a[b]c", "c"),
    ],
)
def test_match_pattern_gives_what_the_star_took(pattern, name, taken):
    """One star, no other magic, and head and tail may not overlap."""
    assert match_pattern(pattern, name) == taken


async def test_close_closes_without_ever_having_connected():
    """A router that was never used closes cleanly."""
    await router(OPENAI).close()


def test_a_route_says_which_calls_in_text_its_models_write():
    """Other models of the same upstream keep the upstream's rules, and the first route that matches decides."""
    strict = RepairRules(tiers=("native",))
    routes = [
        ModelRoute(model="gpt-4*", upstream="openai", repair=strict),
        ModelRoute(model="gpt-*", upstream="openai", repair=RepairRules(tiers=())),
        ModelRoute(model="other", upstream="openai"),
    ]
    found = router(OPENAI, routes=routes)
    tiers = {}
    for name in ("gpt-4.1", "gpt-5", "other"):
        model = found.model_for(name)
        assert isinstance(model, GuardedModel)
        tiers[name] = model.first.endpoint.repair.tiers
    assert tiers == {"gpt-4.1": ("native",), "gpt-5": (), "other": RepairRules().tiers}
