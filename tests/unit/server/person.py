"""The credential of tests that decide: a person's key of the application itself."""

from treadle.server.app import App


def person_header(app: App, name: str = "ada", scope: str = "admin") -> tuple[str, str]:
    """Return the header of a person's own program."""
    now = app.service.runtime.clock.now()
    key = app.service.gate.tickets.key(name, scope, now, 3_600.0)  # type: ignore[arg-type]
    return "authorization", f"Bearer {key}"
