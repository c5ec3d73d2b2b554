"""A route is one row, beside its handler: the router, the permission check and the OpenAPI document read it.

Here are the row itself and the words that rows share. `route_table` puts the rows of all modules together.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, Unpack

import msgspec

from treadle.server.auth.route_permissions import RouteAccess
from treadle.server.http_exchange import Exchange
from treadle.server.server_state import Service

Handler = Callable[[Service, Exchange], Awaitable[None]]
Schema = dict[str, Any]
Form = type[Any] | Schema
"""A struct, whose schema is derived, or a schema as it is written here."""

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer"}
ANY: Schema = {"type": "object", "additionalProperties": True}
"""An object of a vendor's API, whose fields that vendor defines."""


def _anything() -> Schema:
    return {}


class Content(msgspec.Struct, frozen=True):
    """A body: its media type, and its form, where that is known."""

    kind: str
    form: Form = msgspec.field(default_factory=_anything)


Answers = dict[int, tuple[Content, ...]]
"""The successful responses by status. Errors have the form of their API."""


class Query(msgspec.Struct, frozen=True):
    """A parameter in the query or in the headers."""

    name: str
    schema: Schema
    about: str = ""


class ModelAction(msgspec.Struct, frozen=True, kw_only=True):
    """One of several operations behind one route: what follows the colon in Gemini's paths."""

    name: str
    summary: str
    answers: Answers
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    body: Form


class RouteOptions(TypedDict, total=False):
    """What a row names only where it differs from most."""

    query: tuple[Query, ...]
    headers: tuple[Query, ...]
    body: Form
    needs_body: bool
    is_quiet: bool
    actions: tuple[ModelAction, ...]


# Compared by identity: the schemas in a row have no hash.
class HttpRoute(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One row: `{name}` in the pattern takes one segment, `{name*}` all the rest.

    A request may leave the `body` out unless `needs_body`. An `is_quiet` route is polled all the time, and logged only
    at the debug level.
    """

    methods: str
    pattern: str
    handler: Handler
    summary: str
    answers: Answers
    tag: str
    access: RouteAccess
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    body: Form | None = None
    needs_body: bool = True
    is_quiet: bool = False
    actions: tuple[ModelAction, ...] = ()


class RouteGroup(msgspec.Struct, frozen=True):
    """Makes rows that share a tag in the document and a permission."""

    tag: str
    access: RouteAccess

    def get(
        self, pattern: str, handler: Handler, summary: str, answers: Answers, **options: Unpack[RouteOptions]
    ) -> HttpRoute:
        """Return a row that answers GET and HEAD."""
        return self.row("GET HEAD", pattern, handler, summary, answers, **options)

    def post(
        self, pattern: str, handler: Handler, summary: str, answers: Answers, **options: Unpack[RouteOptions]
    ) -> HttpRoute:
        """Return a row that answers POST."""
        return self.row("POST", pattern, handler, summary, answers, **options)

    def row(
        self,
        methods: str,
        pattern: str,
        handler: Handler,
        summary: str,
        answers: Answers,
        **options: Unpack[RouteOptions],
    ) -> HttpRoute:
        """Return a row that answers the methods."""
        return HttpRoute(
            methods=methods,
            pattern=pattern,
            handler=handler,
            summary=summary,
            answers=answers,
            tag=self.tag,
            access=self.access,
            **options,
        )


def number(name: str, about: str, *, least: int = 0, most: int | None = None) -> Query:
    """Return a whole number of the query."""
    bounds: Schema = {"minimum": least} if most is None else {"minimum": least, "maximum": most}
    return Query(name, {"type": "integer", **bounds}, about)


def text(name: str, about: str) -> Query:
    """Return a text of the query."""
    return Query(name, dict(TEXT), about)


def one_of(name: str, about: str, *values: str) -> Query:
    """Return a choice of the query."""
    return Query(name, {"type": "string", "enum": list(values)}, about)


def gives(form: Form, status: int = 200) -> Answers:
    """Return the answer that is one JSON value."""
    return {status: (Content(JSON, form),)}


def streams(form: Form) -> Answers:
    """Return the answer that is JSON, or events where the request asks for a stream."""
    return {200: (Content(JSON, form), Content(EVENTS))}


def fields(**schemas: Schema | type[Any]) -> Schema:
    """Return an object of exactly these fields; a struct among them is referenced by name."""
    return {"type": "object", "properties": dict(schemas), "required": list(schemas)}


def listed(form: Form) -> Schema:
    """Return a list."""
    return {"type": "array", "items": form}


def request(*needed: str, **schemas: Schema) -> Schema:
    """Return a vendor's request: Treadle reads these fields and passes on all others."""
    return {"type": "object", "properties": dict(schemas), "required": list(needed), "additionalProperties": True}


NOTHING: Answers = {204: ()}
PAGE = Content("text/html; charset=utf-8")
JOURNAL = Content("application/x-ndjson")
LIMIT = number("limit", "how many, at most", least=1, most=200)
BEFORE = text("before", "the last id of the page before")
AFTER = number("after", "how much of it is known already")
KEY = Query(
    "idempotency-key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "the same request under the same key is answered by the same run",
)
