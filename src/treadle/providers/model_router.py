"""From a model's name to the model that answers: the first rule that claims the name wins.

1. A route, in the order written. 2. A model in this process, by its name. 3. An endpoint's own patterns: an exact
name, else the longest pattern. 4. `openai/…`: the upstream of that name, prefix stripped. 5. The only upstream.
It makes no call itself and knows nothing of what is asked.
"""

import difflib
import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from treadle.core.errors import ConfigError, NotFound
from treadle.core.ids import IdSource
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.model_listing import Listing
from treadle.providers.provider_client import HttpClient
from treadle.providers.provider_endpoint import Endpoint, check_pattern
from treadle.providers.provider_model import Model, UpstreamModel
from treadle.providers.resilience import EndpointCandidate, EndpointGuard, EndpointHealth, GuardedModel

NAME_CHARS_SHOWN = 100
"""Names come from clients: one of a megabyte shall neither fill a log nor be compared with every known one."""


KNOWN_MAX = 256
"""How many names are remembered with the model that answers to them."""


class ModelRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Names like `model` go to `providers`, there called `rename`; a `*` in that is what the `*` of `model` took.

    `repair` says which calls in text are looked for in these models' answers, where that is not as for the upstream.
    `fallback` are the upstreams asked when this one does not answer, in order: `UPSTREAM`, or `UPSTREAM/MODEL`.
    """

    model: str
    upstream: str
    rename: str | None = None
    repair: RepairRules | None = None
    fallback: tuple[str, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked by this name, and the upstream that serves it."""

    id: str
    upstream: str


class Router:
    """Finds models. `models` are those of this process, by the name they go by; they route like upstreams."""

    def __init__(
        self,
        upstreams: Sequence[Endpoint | EndpointGuard] = (),
        *,
        client: HttpClient,
        ids: IdSource,
        routes: Sequence[ModelRoute] = (),
        models: Mapping[str, Model] | None = None,
        default: str = "",
    ) -> None:
        guards = [each if isinstance(each, EndpointGuard) else EndpointGuard(each) for each in upstreams]
        endpoints = [guard.endpoint for guard in guards]
        self._guards = {guard.endpoint.name: guard for guard in guards}
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._models = dict(models or {})
        self._client = client
        self._listing = Listing(client, time.time)
        self._ids = ids
        self._routes = tuple(routes)
        self._patterns = [
            (_weight(pattern), pattern, endpoint.name) for endpoint in endpoints for pattern in endpoint.models
        ]
        self._patterns.sort(key=lambda claim: claim[0], reverse=True)
        self._default = default
        self._known: dict[str, Model] = {}
        self._check(endpoints)

    def model_for(self, name: str) -> Model:
        """Return the model that answers to this name; an empty name means the default.

        Raises: NotFound, naming the nearest models that exist.
        """
        if (known := self._known.get(name)) is not None:
            return known
        model = self._make(name or self._default or next((info.id for info in self.models()), ""))
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[name] = model
        return model

    def _make(self, wanted: str) -> Model:
        found = self._find(wanted)
        if found is None:
            raise self._not_found(wanted)
        route = self._route_for(wanted)
        model = self._bind(*found, None if route is None else route.repair)
        if not isinstance(model, UpstreamModel):
            return model
        others = () if route is None else (self._other(place, found[1]) for place in route.fallback)
        return GuardedModel([EndpointCandidate(each, self._guards[each.endpoint.name]) for each in (model, *others)])

    def health(self) -> list[EndpointHealth]:
        """Return how every endpoint does."""
        return [guard.health() for guard in self._guards.values()]

    def models(self) -> list[ModelInfo]:
        """List the models that have a name of their own, the default first."""
        found = self._find(self._default)
        infos = [ModelInfo(id=self._default, upstream=found[0])] if found else []
        infos += [ModelInfo(id=route.model, upstream=route.upstream) for route in self._routes]
        infos += [ModelInfo(id=name, upstream=name) for name in self._models]
        for endpoint in self._endpoints.values():
            infos += [ModelInfo(id=pattern, upstream=endpoint.name) for pattern in endpoint.models]
        unique: dict[str, ModelInfo] = {}
        for info in infos:
            if "*" not in info.id:
                unique.setdefault(info.id, info)
        return list(unique.values())

    async def list_models(self) -> list[ModelInfo]:
        """List the models by name, and those that endpoints without names of their own say they have."""
        infos = self.models()
        nameless = [each for each in self._endpoints.values() if all("*" in pattern for pattern in each.models)]
        listed = await self._listing.names(nameless)
        is_only = len(self._endpoints) == 1
        known = {info.id for info in infos}
        for upstream, names in listed.items():
            ids = [name if is_only else f"{upstream}/{name}" for name in names]
            infos += [ModelInfo(id=each, upstream=upstream) for each in ids if each not in known]
        return infos

    async def close(self) -> None:
        """Close the connections to all endpoints."""
        await self._client.close()

    def _check(self, endpoints: Sequence[Endpoint]) -> None:
        names = [endpoint.name for endpoint in endpoints] + list(self._models)
        if twice := _first_twice(names):
            raise ConfigError(f"two upstreams are named {twice!r}", param="name")
        for route in self._routes:
            check_pattern(route.model)
            if route.upstream not in names:
                raise ConfigError(
                    f"route {route.model!r} names the unknown upstream {route.upstream!r}", param="upstream"
                )
            for place in route.fallback:
                if place.partition("/")[0] not in self._endpoints:
                    raise ConfigError(
                        f"route {route.model!r} falls back on the unknown upstream {place!r}",
                        param="fallback",
                        hint=f"write UPSTREAM or UPSTREAM/MODEL with one of: {', '.join(self._endpoints)}",
                    )

    def _find(self, name: str) -> tuple[str, str] | None:
        """Return the upstream that this name goes to, and what the name is there."""
        if not name:
            return None
        return self._by_route(name) or self._by_claim(name) or self._by_prefix(name) or self._only(name)

    def _by_route(self, name: str) -> tuple[str, str] | None:
        for route in self._routes:
            taken = match_pattern(route.model, name)
            if taken is not None:
                return route.upstream, route.rename.replace("*", taken) if route.rename else name
        return None

    def _route_for(self, name: str) -> ModelRoute | None:
        """Return the route that a name takes."""
        return next((route for route in self._routes if match_pattern(route.model, name) is not None), None)

    def _other(self, place: str, name: str) -> UpstreamModel:
        """Return the model to fall back on: the same name at another upstream, or another name there."""
        upstream, slash, rest = place.partition("/")
        return UpstreamModel(self._endpoints[upstream], self._client, self._ids, name=rest if slash else name)

    def _by_claim(self, name: str) -> tuple[str, str] | None:
        if name in self._models:
            return name, name
        for _, pattern, upstream in self._patterns:
            if match_pattern(pattern, name) is not None:
                return upstream, name
        return None

    def _by_prefix(self, name: str) -> tuple[str, str] | None:
        upstream, slash, rest = name.partition("/")
        if slash and rest and (upstream in self._endpoints or upstream in self._models):
            return upstream, rest
        return None

    def _only(self, name: str) -> tuple[str, str] | None:
        """Take the only upstream there is; a model of this process counts only where there is no endpoint."""
        candidates = self._endpoints or self._models
        return (next(iter(candidates)), name) if len(candidates) == 1 else None

    def _bind(self, upstream: str, name: str, repair: RepairRules | None) -> Model:
        if upstream in self._models:
            return self._models[upstream]
        endpoint = self._endpoints[upstream]
        if repair is not None:
            endpoint = msgspec.structs.replace(endpoint, repair=repair)
        return UpstreamModel(endpoint, self._client, self._ids, name=name)

    def _not_found(self, name: str) -> NotFound:
        shown = name[:NAME_CHARS_SHOWN]
        known = [info.id for info in self.models()]
        upstreams = [*self._endpoints, *self._models]
        near = difflib.get_close_matches(shown, known, n=3, cutoff=0.5) or known[:3]
        return NotFound(
            f"no upstream serves the model {shown!r}"
            if shown
            else "the request names no model, and there is no default",
            code="model_not_found",
            param="model",
            hint=_hint(near, upstreams, shown),
        )


def match_pattern(pattern: str, name: str) -> str | None:
    """Return what the pattern's `*` stands for in the name (nothing, if it has none); None if it does not match."""
    head, star, tail = pattern.partition("*")
    if not star:
        return "" if name == pattern else None
    if len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail):
        return name[len(head) : len(name) - len(tail)]
    return None


def _weight(pattern: str) -> tuple[bool, int]:
    """Rank an exact name above every pattern, and a long pattern above a short one."""
    return "*" not in pattern, len(pattern)


def _first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _hint(near: list[str], upstreams: list[str], shown: str) -> str:
    if not upstreams:
        return "no upstream is configured: set a provider's key, or add one to treadle.toml"
    asked = shown or "MODEL"
    nearest = f"nearest known models: {', '.join(near)}; " if near else ""
    return f"{nearest}any model of an upstream can be asked as UPSTREAM/MODEL, for example {upstreams[0]}/{asked}"
