"""The identity of a client and its permissions: APIs, models, tools and role. Pure."""

from fnmatch import fnmatchcase

import msgspec

from treadle.core.errors import Forbidden, Unauthorised
from treadle.journal.keys_interface import KeyGrant, KeyRow, Role

ROLES: tuple[Role, ...] = ("none", "viewer", "operator", "admin")
"""The console roles, from the least to the most permissions."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The sender of a request: the holder of a key, a person, or a local program where no keys are needed.

    Without a credential a client cannot decide approvals (`may_decide`), since a command run by a model could send such
    a request too.
    """

    key_id: str = ""
    name: str = "local"
    grant: KeyGrant = KeyGrant(role="admin")
    may_decide: bool = True

    def check_api(self, api: str) -> None:
        """Check that the client may use an API. Raises: Forbidden."""
        if not fits(api, self.grant.apis):
            raise self._refused(f"the {api} API", "apis")

    def check_model(self, model: str) -> None:
        """Check that the client may use a model. Raises: Forbidden."""
        if not fits(model, self.grant.models):
            raise self._refused(f"the model {model[:100]!r}", "models", param="model")

    def check_role(self, role: Role) -> None:
        """Check that the client has at least this role. Raises: Forbidden."""
        if ROLES.index(self.grant.role) < ROLES.index(role):
            raise self._refused(f"what needs the role {role!r}", "role")

    def reach(self, *, is_read: bool) -> str | None:
        """Return the key whose data the client may read or change: its own, or None for all if its role permits."""
        if not (is_read or self.may_decide):
            return self.key_id
        needed: Role = "viewer" if is_read else "operator"
        return None if ROLES.index(self.grant.role) >= ROLES.index(needed) else self.key_id

    def check_decides(self, what: str = "This") -> None:
        """Check that the client may decide for a person. Raises: Unauthorised."""
        if not self.may_decide:
            raise Unauthorised(
                f"{what} needs a person's login or a key: a request without one can come from a tool.",
                code="person_needed",
                hint="In a browser open the link of `treadle login`. A program sends the key that "
                "`treadle login --key` or `treadle keys create` prints.",
            )

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


LOCAL = Client(may_decide=False)
"""A local program without a credential, where none is needed."""

PUBLIC_CLIENT = Client(name="anybody", grant=KeyGrant(), may_decide=False)
"""The client of public routes, such as the liveness probe."""


def client_of(row: KeyRow) -> Client:
    """Return the holder of a key."""
    return Client(key_id=row.id, name=row.name, grant=row.grant)


def fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name matches one of the patterns."""
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
