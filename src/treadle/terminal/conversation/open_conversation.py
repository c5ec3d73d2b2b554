"""Opens what a conversation needs: the Treadle that the flags name, and the policy of the folder."""

import argparse
import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from treadle.core.errors import ConfigError
from treadle.terminal.permissions.permission_policy import Mode, PermissionPolicy
from treadle.terminal.permissions.remembered_permissions import FILE_NAME, Allowances

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.terminal.conversation.host_interface import ConversationHost


@contextlib.asynccontextmanager
async def opened_host(
    args: argparse.Namespace, settings: "Settings", on_progress: Callable[[str], object]
) -> "AsyncGenerator[ConversationHost, None]":
    """Open the Treadle that the flags name: this process, or a server. `on_progress` gets the progress texts of tools.

    Raises: TreadleError.
    """
    if args.server:
        from treadle.terminal.conversation.person_key import person_key
        from treadle.terminal.conversation.remote_host import RemoteHost

        async with RemoteHost(args.server, server_key(args), person_key(settings, args.server)) as far:
            yield far
        return
    # Off the loop, so that a person who types already sees it.
    await asyncio.to_thread(importlib.import_module, "treadle.runtime")
    from treadle.runtime import Runtime
    from treadle.runtime.injected_parts import Parts
    from treadle.terminal.conversation.local_host import LocalHost

    parts = Parts(report=lambda _, text: (on_progress(text), None)[1], is_local=True)
    async with Runtime(settings, parts=parts) as runtime:
        yield LocalHost(runtime)


def make_policy(mode: Mode, root: str) -> PermissionPolicy:
    """Return the policy of a folder, with what is remembered for it."""
    from treadle.config.loader import data_directory

    return PermissionPolicy(mode, Allowances(os.path.realpath(root), data_directory(os.environ) / FILE_NAME))


def server_key(args: argparse.Namespace) -> str:
    """Return the key for the server that the flags name; nothing when they name none.

    Raises: ConfigError.
    """
    if not args.key_env:
        return ""
    if not (key := os.environ.get(args.key_env, "").strip()):
        raise ConfigError(
            f"the variable {args.key_env} is not set", param="--key-env", hint="it holds the server's key"
        )
    return key
