"""Finds the model for a name: the first matching rule wins.

1. A route, in the configured order. 2. A model in this process, by its name. 3. An endpoint's own patterns: an exact
name, else the longest pattern. 4. `openai/…`: the upstream of that name, without the prefix. 5. The only upstream.
It makes no calls, except to list models, and sees no request.
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
"""Names come from clients: a very long one must not fill a log or be compared with every known name."""


KNOWN_MAX = 256
"""How many names are cached with their model."""


class ModelRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Names that match `model` go to `upstream` as `rename`, where `*` is what the `*` of `model` matched.

    `repair` overrides the upstream's rules for recovering tool calls from text. `fallback` are the upstreams that are
    tried in order if this one fails: `UPSTREAM`, or `UPSTREAM/MODEL`.
    """

    model: str
    upstream: str
    rename: str | None = None
    repair: RepairRules | None = None
    fallback: tuple[str, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model's public name, and the upstream that serves it."""

    id: str
    upstream: str


class Router:
    """Finds models by name. `models` are those in this process; routes can name them like upstreams."""

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
            (_specificity(pattern), pattern, endpoint.name) for endpoint in endpoints for pattern in endpoint.models
        ]
        self._patterns.sort(key=lambda claim: claim[0], reverse=True)
        self._default = default
        self._cached: dict[str, Model] = {}
        self._check(endpoints)

    def model_for(self, name: str) -> Model:
        """Return the model of a name; an empty name means the default.

        Raises: NotFound, with the most similar names.
        """
        if (known := self._cached.get(name)) is not None:
            return known
        model = self._make(name or self._default or next((info.id for info in self.models()), ""))
        if len(self._cached) >= KNOWN_MAX:
            self._cached.clear()
        self._cached[name] = model
        return model

    def _make(self, wanted: str) -> Model:
        found = self._find(wanted)
        if found is None:
            raise self._not_found(wanted)
        route = self._route_for(wanted)
        model = self._bind(*found, None if route is None else route.repair)
        if not isinstance(model, UpstreamModel):
            return model
        others = () if route is None else (self._fallback_model(place, found[1]) for place in route.fallback)
        return GuardedModel([EndpointCandidate(each, self._guards[each.endpoint.name]) for each in (model, *others)])

    def health(self) -> list[EndpointHealth]:
        """Return the health of every endpoint."""
        return [guard.health() for guard in self._guards.values()]

    def models(self) -> list[ModelInfo]:
        """Return the models with a configured name, the default first."""
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
        """Return the configured models, and those listed by endpoints that have no configured names."""
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
        if duplicate := _first_duplicate(names):
            raise ConfigError(f"two upstreams are named {duplicate!r}", param="name")
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
        """Return the upstream of a name, and the model's name there."""
        if not name:
            return None
        return self._by_route(name) or self._by_pattern(name) or self._by_prefix(name) or self._only(name)

    def _by_route(self, name: str) -> tuple[str, str] | None:
        for route in self._routes:
            matched = match_pattern(route.model, name)
            if matched is not None:
                return route.upstream, route.rename.replace("*", matched) if route.rename else name
        return None

    def _route_for(self, name: str) -> ModelRoute | None:
        """Return the first route that matches a name."""
        return next((route for route in self._routes if match_pattern(route.model, name) is not None), None)

    def _fallback_model(self, place: str, name: str) -> UpstreamModel:
        """Return a fallback model: the same name at another upstream, or another name there."""
        upstream, slash, rest = place.partition("/")
        return UpstreamModel(self._endpoints[upstream], self._client, self._ids, name=rest if slash else name)

    def _by_pattern(self, name: str) -> tuple[str, str] | None:
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
        """Return the only upstream, if there is one; models in this process count only without endpoints."""
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
    """Return what the pattern's `*` matched in the name (empty without `*`); None if it does not match."""
    head, star, tail = pattern.partition("*")
    if not star:
        return "" if name == pattern else None
    if len(name) >= len(head) + len(tail) and name.startswith(head) and name.endswith(tail):
        return name[len(head) : len(name) - len(tail)]
    return None


def _specificity(pattern: str) -> tuple[bool, int]:
    """Rank an exact name above every pattern, and a long pattern above a short one."""
    return "*" not in pattern, len(pattern)


def _first_duplicate(names: Iterable[str]) -> str | None:
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
