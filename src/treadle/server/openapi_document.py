"""Builds the OpenAPI document from the table of routes. What an operation takes and returns is stated in its row."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from treadle.protocols.error_envelopes import SHARED_MODELS, envelope_of
from treadle.protocols.protocol_registry import PROTOCOLS, Vendor
from treadle.server.route import ANY, JSON, Content, HttpRoute, Query, Schema, fields

TITLE = "Treadle"
VERSION = "1"
ABOUT = (
    "A gateway for tool calling. Paths under /v1 also answer without it. Requests and answers of the vendors' APIs are "
    "described loosely: their own documents say what is in them, and fields that are not known are taken as well."
)
_PARAMETER = re.compile(r"\{([a-z_]+)\}")
_REF = "#/components/schemas/{name}"
# The names of schemas are public: generators of clients make classes of them. Classes may be renamed, schemas may not.
_PUBLISHED = {
    "ApprovalDecision": "Decision",
    "ApprovalRule": "Rule",
    "DecisionBody": "Choice",
    "EndpointHealth": "Health",
    "KeyBudget": "Budget",
    "KeyRates": "Rates",
    "QuestionFile": "File",
    "SessionTurn": "Turn",
    "TurnQuestion": "Question",
    "WaitingCounts": "Waiting",
    "WorkspaceFinding": "Finding",
    "WorkspaceRecord": "Record",
}
_NAME: Schema = {"type": ["string", "null"]}
_OPENAI_ERROR = fields(message={"type": "string"}, type={"type": "string"}, param=_NAME, code=_NAME)
ERRORS: dict[str, Schema] = {
    "OpenAIError": fields(error=_OPENAI_ERROR),
    "AnthropicError": fields(
        type={"const": "error"}, error=fields(type={"type": "string"}, message={"type": "string"})
    ),
    "GeminiError": fields(
        error=fields(code={"type": "integer"}, message={"type": "string"}, status={"type": "string"})
    ),
    "Error": fields(error=fields(code={"type": "string"}, message={"type": "string"}, hint=_NAME, param=_NAME)),
}
_ENVELOPES: dict[Vendor, str] = {"openai": "OpenAIError", "anthropic": "AnthropicError", "google": "GeminiError"}
_SECURITY: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "x-goog-api-key": {"type": "apiKey", "in": "header", "name": "x-goog-api-key"},
    "key": {"type": "apiKey", "in": "query", "name": "key"},
}


class Operation(msgspec.Struct, frozen=True):
    """One method of one path, with the row that describes it."""

    method: str
    row: HttpRoute

    @property
    def path(self) -> str:
        """Return the path as OpenAPI writes it: a parameter is a name, even where it may contain slashes."""
        return self.row.pattern.replace("*}", "}")


def operations(table: Sequence[HttpRoute]) -> Iterator[Operation]:
    """Yield what the rows describe; HEAD is described with its GET."""
    for row in table:
        for action in row.actions:
            described = msgspec.structs.replace(
                row,
                pattern=f"{row.pattern}:{action.name}",
                summary=action.summary,
                answers=action.answers,
                query=action.query,
                headers=action.headers,
                body=action.body,
            )
            yield Operation(row.methods, described)
        methods = [] if row.actions else [each for each in row.methods.split() if each != "HEAD"]
        for method in methods:
            # Of several methods, only POST has a body.
            has_body = method in ("POST", row.methods)
            yield Operation(method, row if has_body else msgspec.structs.replace(row, body=None))


def document(table: Sequence[HttpRoute]) -> dict[str, Any]:
    """Make the document."""
    described = list(operations(table))
    kinds = sorted({kind for operation in described for kind in _kinds(operation)}, key=_schema_name)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    forms = {kind: _with_published_names(schema) for kind, schema in zip(kinds, schemas, strict=True)}
    components = {_PUBLISHED.get(name, name): _with_published_names(schema) for name, schema in components.items()}
    paths: dict[str, dict[str, Any]] = {}
    for operation in described:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _operation(operation, forms)
        if "HEAD" in operation.row.methods.split():
            methods["head"] = _head(operation, forms)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": VERSION, "description": ABOUT},
        "paths": paths,
        "components": {"schemas": {**components, **ERRORS}, "securitySchemes": _SECURITY},
        "security": [{}, *({name: []} for name in _SECURITY)],
    }


def _schema_name(kind: type) -> str:
    return _PUBLISHED.get(kind.__qualname__, kind.__qualname__)


def _with_published_names(schema: Any) -> Any:
    """Rename references and titles to the published names."""
    if isinstance(schema, list):
        return [_with_published_names(part) for part in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    renamed: dict[str, Any] = {}
    for key, value in cast(dict[str, Any], schema).items():
        if key in ("$ref", "title") and isinstance(value, str):
            prefix, slash, name = value.rpartition("/")
            renamed[key] = prefix + slash + _PUBLISHED.get(name, name)
        else:
            renamed[key] = _with_published_names(value)
    return renamed


def _operation(operation: Operation, forms: dict[type, Schema]) -> Schema:
    made: Schema = {
        "operationId": _name(operation),
        "summary": operation.row.summary,
        "tags": [operation.row.tag],
        "parameters": _parameters(operation),
        "responses": _responses(operation, forms),
    }
    if operation.row.body is not None:
        content = {JSON: {"schema": _schema(operation.row.body, forms)}}
        made["requestBody"] = {"required": operation.row.needs_body, "content": content}
    return made


def _head(operation: Operation, forms: dict[type, Schema]) -> Schema:
    """Describe HEAD: the headers of GET, and nothing else."""
    made = _operation(operation, forms)
    responses = {status: {"description": answer["description"]} for status, answer in made["responses"].items()}
    return {**made, "operationId": f"head_{made['operationId']}", "responses": responses}


def _parameters(operation: Operation) -> list[Schema]:
    path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, "maxLength": 256}}
        for name in _PARAMETER.findall(operation.path)
    ]
    query = [_parameter(each, "query") for each in operation.row.query]
    return [*path, *query, *(_parameter(each, "header") for each in operation.row.headers)]


def _parameter(query: Query, place: str) -> Schema:
    return {"name": query.name, "in": place, "description": query.about, "schema": query.schema}


def _responses(operation: Operation, forms: dict[type, Schema]) -> Schema:
    page: Schema = {"text/html": {"schema": {"type": "string"}}} if operation.row.tag in ("Pages", "Login") else {}
    error: Schema = {
        "description": "An error in the form of this API",
        "content": {JSON: {"schema": _error(operation)}, **page},
    }
    good = {
        str(status): {"description": operation.row.summary, **_content(contents, forms)}
        for status, contents in operation.row.answers.items()
    }
    return {**good, "4XX": error, "5XX": error}


def _error(operation: Operation) -> Schema:
    if operation.row.tag == "MCP":
        return dict(ANY)  # most of them are the protocol's own
    envelope = envelope_of(operation.path)
    if envelope == SHARED_MODELS:
        names = ("OpenAIError", "AnthropicError", "GeminiError")
        return {"anyOf": [{"$ref": _REF.format(name=name)} for name in names]}
    name = _ENVELOPES[PROTOCOLS[envelope].vendor] if envelope in PROTOCOLS else "Error"
    return {"$ref": _REF.format(name=name)}


def _content(contents: tuple[Content, ...], forms: dict[type, Schema]) -> Schema:
    if not contents:
        return {}
    return {"content": {content.kind: {"schema": _schema(content.form, forms)} for content in contents}}


def _schema(form: object, forms: dict[type, Schema]) -> Any:
    """Write a form with the structs in it put in by name."""
    match form:
        case type():
            return forms[form]
        case dict():
            return {name: _schema(value, forms) for name, value in cast("Schema", form).items()}
        case list():
            return [_schema(value, forms) for value in cast("list[object]", form)]
        case _:
            return form


def _kinds(operation: Operation) -> set[type]:
    contents = [content.form for each in operation.row.answers.values() for content in each]
    return {kind for form in (operation.row.body, *contents) for kind in _inside(form)}


def _inside(form: object) -> list[type]:
    """Return the structs in a form."""
    match form:
        case type():
            return [form]
        case dict():
            return [kind for value in cast("Schema", form).values() for kind in _inside(value)]
        case list():
            return [kind for value in cast("list[object]", form) for kind in _inside(value)]
        case _:
            return []


def _name(operation: Operation) -> str:
    """Return a name that is one word and of this operation alone."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", operation.path).strip("_")
    return f"{operation.method.lower()}_{words or 'root'}"
