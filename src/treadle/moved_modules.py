"""Documented modules that have moved: the old names still import, with a `DeprecationWarning` that names the new one.

They go with version 2. Modules that the documents never named are not here.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "treadle.canon.errors": "treadle.core.errors",
    "treadle.canon.events": "treadle.core.events",
    "treadle.canon.ids": "treadle.core.ids",
    "treadle.canon.items": "treadle.core.items",
    "treadle.canon.plan": "treadle.core.plan",
    "treadle.canon.usage": "treadle.core.usage",
    "treadle.runs.approval.service": "treadle.runs.approvals.decisions",
    "treadle.upstream.model": "treadle.providers.provider_model",
    "treadle.upstream.render": "treadle.providers.fakes.reply_rendering",
    "treadle.upstream.reply": "treadle.providers.fakes.scripted_reply",
    "treadle.workspace.desk": "treadle.workspace.workspace_service",
    "treadle.workspace.shelf": "treadle.workspace.workspace_store",
    "treadle.workspace.state": "treadle.workspace.workspace_state",
}
_PACKAGES = ("treadle.canon", "treadle.runs.approval", "treadle.upstream")


class _Finder:
    """Finds old names; it is asked only for names that no other finder knows."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import an old name, or nothing for any other."""
        del path, target
        if name in MOVED or name in _PACKAGES:
            return ModuleSpec(name, _Loader(), is_package=name in _PACKAGES)
        return None


class _Loader(Loader):
    """Fills a module with what the one at the new place holds."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Copy the names, so that classes are the same under both."""
        new = MOVED.get(module.__name__)
        if new is None:
            return
        warnings.warn(
            f"{module.__name__} is now {new}; the old name goes with version 2", DeprecationWarning, stacklevel=2
        )
        real = import_module(new)
        module.__dict__.update({name: value for name, value in vars(real).items() if not name.startswith("__")})


def install() -> None:
    """Let old names be imported in this process."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)  # type: ignore[arg-type]
