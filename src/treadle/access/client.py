"""Who is asking, and what they may reach. Pure."""

from fnmatch import fnmatchcase

import msgspec

from treadle.canon.errors import Forbidden
from treadle.store.keys.kept import Grant, KeyRow, Role

ROLES: tuple[Role, ...] = ("none", "viewer", "operator", "admin")
"""What each may do in the console, each more than the one before."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: the holder of a key, or whoever is at this machine where no keys are needed."""

    key_id: str = ""
    name: str = "local"
    grant: Grant = Grant(role="admin")

    def check_api(self, api: str) -> None:
        """Let the client use an API. Raises: Forbidden."""
        if not fits(api, self.grant.apis):
            raise self._refused(f"the {api} API", "apis")

    def check_model(self, model: str) -> None:
        """Let the client ask a model. Raises: Forbidden."""
        if not fits(model, self.grant.models):
            raise self._refused(f"the model {model[:100]!r}", "models", param="model")

    def check_role(self, role: Role) -> None:
        """Let the client look at, work, or manage what is everybody's. Raises: Forbidden."""
        if ROLES.index(self.grant.role) < ROLES.index(role):
            raise self._refused(f"what needs the role {role!r}", "role")

    def reach(self, *, is_read: bool) -> str | None:
        """Return whose things the client may look at or change: those of its own key, or with a role everybody's."""
        needed: Role = "viewer" if is_read else "operator"
        return None if ROLES.index(self.grant.role) >= ROLES.index(needed) else self.key_id

    @property
    def tools(self) -> tuple[str, ...] | None:
        """Return the patterns of the server tools that the client's runs may be offered; None is all."""
        return None if "*" in self.grant.tools else self.grant.tools

    def _refused(self, what: str, scope: str, param: str | None = None) -> Forbidden:
        return Forbidden(
            f"The key {self.name!r} may not use {what}.",
            code="key_scope",
            param=param,
            hint=f"its owner can make one that may: treadle keys create --{scope}",
        )


LOCAL = Client()
"""Whoever asks where no keys are needed."""

ANYBODY = Client(name="anybody", grant=Grant())
"""Whoever asks for what is open to all, such as whether the server lives."""


def client_of(row: KeyRow) -> Client:
    """Return the holder of a key."""
    return Client(key_id=row.id, name=row.name, grant=row.grant)


def fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether a name fits one of some patterns."""
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
