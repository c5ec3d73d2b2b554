"""What is said of one operation, and the words that many of them share."""

from typing import Any

import msgspec

Schema = dict[str, Any]
Form = type[Any] | Schema
"""A struct, whose schema is derived, or a schema as it is written here."""

JSON = "application/json"
EVENTS = "text/event-stream"
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer"}
ANY: Schema = {"type": "object", "additionalProperties": True}
"""An object of a vendor's API: which fields it has is that vendor's to say."""


def _anything() -> Schema:
    return {}


class Content(msgspec.Struct, frozen=True):
    """A body: its type, and its form, where that can be said."""

    kind: str
    form: Form = msgspec.field(default_factory=_anything)


class Query(msgspec.Struct, frozen=True):
    """A field of the query."""

    name: str
    schema: Schema
    about: str = ""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path. `route` is the row of the server's table that answers it.

    `body` may be left out of a request unless `needs_body`; `answers` are the good ones, an error is the API's own.
    """

    method: str
    route: str
    summary: str
    tag: str
    path: str = ""
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    body: Form | None = None
    needs_body: bool = True
    answers: dict[int, tuple[Content, ...]] = {}
    reads: bool = False

    @property
    def shown_path(self) -> str:
        """Return the path as OpenAPI writes it: a parameter is a name, also where it may have slashes in it."""
        return (self.path or self.route).replace("*}", "}")


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


def gives(form: Form, status: int = 200) -> dict[int, tuple[Content, ...]]:
    """Return the answer that is one JSON value."""
    return {status: (Content(JSON, form),)}


def streams(form: Form, status: int = 200) -> dict[int, tuple[Content, ...]]:
    """Return the answer that is JSON, or events where the request asks for a stream."""
    return {status: (Content(JSON, form), Content(EVENTS))}


def fields(**schemas: Schema | type[Any]) -> Schema:
    """Return an object of exactly these fields; a struct among them is put in by name."""
    return {"type": "object", "properties": dict(schemas), "required": list(schemas)}


def listed(form: Form) -> Schema:
    """Return a list."""
    return {"type": "array", "items": form}


def request(*needed: str, **schemas: Schema) -> Schema:
    """Return a vendor's request: these fields are looked at, all others are taken as well."""
    return {"type": "object", "properties": dict(schemas), "required": list(needed), "additionalProperties": True}


NOTHING: dict[int, tuple[Content, ...]] = {204: ()}
LIMIT = number("limit", "how many, at most", least=1, most=200)
BEFORE = text("before", "the last id of the page before")
KEY = Query(
    "idempotency-key",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    "the same request under the same key is answered by the same run",
)
