"""Compares these settings with the processes that already share the journal."""

import asyncio
from collections.abc import Mapping

import msgspec

from treadle.cli.doctor.check_result import Check
from treadle.config import Settings, sqlite_path
from treadle.core.errors import TreadleError
from treadle.journal.open_store import JournalInspection, inspect_store
from treadle.journal.store_url import PostgresAddress, is_postgres

NO_SECRET = "the secret under which the keys of this journal were made is not here: they would be refused"
_BRING_BACK = "bring back secret.key beside the journal, or set TREADLE_SECRET to the same text as the other processes"


def check_replicas(settings: Settings, env: Mapping[str, str]) -> list[Check]:
    """Compare this configuration with the processes that use the journal now; no check if there are none."""
    try:
        seen = _inspect(settings, env)
        return [] if seen is None else _compare(settings, env, seen)
    except TreadleError:
        return []  # the checks of the store and of the tools report the reason


def _inspect(settings: Settings, env: Mapping[str, str]) -> JournalInspection | None:
    if settings.store.persistence == "off":
        return None
    if is_postgres(settings.store.url):
        address = PostgresAddress(settings.store.url, password=env.get(settings.store.password_env, ""))
        return asyncio.run(inspect_store(address))
    path = sqlite_path(settings.store.url)
    if not path.exists() or not path.stat().st_size:
        return None
    from treadle.journal.sqlite.migrations import inspect_file

    return inspect_file(str(path), is_read_only=True)


def _compare(settings: Settings, env: Mapping[str, str], seen: JournalInspection) -> list[Check]:
    from treadle.runtime import Runtime
    from treadle.runtime.replica_comparison import OTHER_KEYS, SECRET_HINT, Facts, differences, facts_of

    secret = _fingerprint(settings, env)
    if secret is None and seen.secrets:
        return [Check(name="replicas", state="broken", detail=NO_SECRET, advice=_BRING_BACK)]
    if secret and seen.secrets and secret not in seen.secrets:
        return [Check(name="replicas", state="broken", detail=OTHER_KEYS, advice=SECRET_HINT)]
    if not seen.replicas:
        return []
    here = facts_of(settings, Runtime(settings).registry.tools(), secret or "")
    found = {owner: differences(here, msgspec.json.decode(facts, type=Facts)) for owner, facts in seen.replicas}
    lines = [
        f"{owner} differs in {kind}: {', '.join(names)}"
        for owner, differs in found.items()
        for kind, names in differs.items()
    ]
    count = f"{len(found)} share this journal just now"
    if not lines:
        return [Check(name="replicas", state="ok", detail=f"{count}, all like this configuration")]
    is_refused = any("secret" in differs for differs in found.values())
    advice = (
        SECRET_HINT
        if is_refused
        else "servers of one journal need the same configuration and tools; a chat, or an upgrade, may differ"
    )
    state = "broken" if is_refused else "note"
    return [Check(name="replicas", state=state, detail="\n".join((count, *lines)), advice=advice)]


def _fingerprint(settings: Settings, env: Mapping[str, str]) -> str | None:
    """Return the fingerprint of the secret, empty where none is needed, None where it is missing; none is made here."""
    from treadle.access.keyring import fingerprint_of
    from treadle.server.auth.authentication import asks_for_key
    from treadle.server.auth.installation_secret import present_secret, secret_for
    from treadle.server.auth.page_access import asks_for_login

    if not (asks_for_key(settings) or asks_for_login(settings)):
        return ""
    found = present_secret(settings, env)
    return None if found is None else fingerprint_of(secret_for("keys", found))
