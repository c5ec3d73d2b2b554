"""Which models there are, in the shapes of three APIs."""

import pytest

from treadle.server.app import App
from unit.server.visit import LOCAL, Visit

DEMO = {"id": "demo", "object": "model", "created": 0, "owned_by": "demo"}
ANTHROPIC = [LOCAL, ("anthropic-version", "2023-06-01")]
CLAUDE_SHAPE = {"type": "model", "id": "demo", "display_name": "demo", "created_at": "1970-01-01T00:00:00Z"}

GEMINI_SHAPE = {
    "name": "models/demo",
    "displayName": "demo",
    "version": "",
    "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
}


async def test_models_in_openais_shape(app: App) -> None:
    """With and without /v1, as a list and one by one."""
    for path in ("/v1/models", "/models"):
        assert (await Visit(app, "GET", path).run()).json() == {"object": "list", "data": [DEMO]}
    assert (await Visit(app, "GET", "/v1/models/demo").run()).json() == DEMO


async def test_models_in_anthropics_shape(app: App) -> None:
    """The version header tells which shape a client reads."""
    visit = await Visit(app, "GET", "/v1/models?limit=1000", headers=ANTHROPIC).run()
    assert visit.json() == {"data": [CLAUDE_SHAPE], "has_more": False, "first_id": "demo", "last_id": "demo"}
    assert (await Visit(app, "GET", "/v1/models/demo", headers=ANTHROPIC).run()).json() == CLAUDE_SHAPE


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1beta/models", [LOCAL]),
        ("/v1/models", [LOCAL, ("x-goog-api-key", "k")]),
        ("/v1/models?key=k", [LOCAL]),
        ("/models?pageSize=5&key=k", [LOCAL]),
    ],
)
async def test_models_in_geminis_shape(app: App, path: str, headers: list[tuple[str, str]]) -> None:
    """Its own path, or where its key is sent."""
    page, _, query = path.partition("?")
    assert (await Visit(app, "GET", path, headers=headers).run()).json() == {"models": [GEMINI_SHAPE]}
    assert (await Visit(app, "GET", f"{page}/demo?{query}", headers=headers).run()).json() == GEMINI_SHAPE


async def test_an_unknown_model_is_a_404_in_the_callers_envelope(app: App) -> None:
    """A name may have slashes."""
    visit = await Visit(app, "GET", "/v1/models/vendor/none").run()
    assert (visit.status, visit.json()["error"]["code"]) == (404, "model_not_found")
    other = await Visit(app, "GET", "/v1/models/vendor/none", headers=ANTHROPIC).run()
    assert (other.status, other.json()["error"]["type"]) == (404, "not_found_error")


async def test_an_unknown_model_on_geminis_path_has_geminis_envelope(app: App) -> None:
    """A list of details is part of it."""
    visit = await Visit(app, "GET", "/v1beta/models/vendor/none").run()
    message = "There is no model 'vendor/none'. GET /v1/models lists them."
    error = {"code": 404, "message": message, "status": "NOT_FOUND", "details": []}
    assert (visit.status, visit.json()) == (404, {"error": error})


async def test_head_is_answered_like_get_without_the_body(app: App) -> None:
    """Probes of clients get a status."""
    assert [(await Visit(app, "HEAD", path).run()).status for path in ("/", "/v1/models", "/api/hello")] == [
        200,
        200,
        200,
    ]
