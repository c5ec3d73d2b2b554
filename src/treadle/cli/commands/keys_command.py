"""`treadle keys`: the keys that clients bring. Make one, list them with what they have used, revoke one.

Works on the store, so a server that runs on the same one takes a new key at once and a revoked one no more.
"""

import argparse
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.core.errors import ConfigError
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.access.key_views import KeyView
    from treadle.access.keyring import Keyring
    from treadle.journal.journal_interface import Store
    from treadle.journal.keys_interface import KeyGrant, KeyRow

LIMIT = 200
ROLES = ("none", "viewer", "operator", "admin")
PERIODS = ("day", "month", "total")
_UNITS_S = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"([1-9][0-9]{0,8})([mhdw])")
EPILOG = """\
Without an action the keys are listed. A new key is printed on stdout, once: what is kept of it can not show it again.
--apis, --models and --tools take names or patterns with commas between; without them a key may use all of them.

examples:
  treadle keys create ci
  treadle keys create app --apis chat,responses --models 'gpt-*' --tools 'get_*' --expires 30d
  treadle keys create team --rpm 60 --tpm 100000 --runs 4 --budget-usd 20 --period month
  treadle keys create ops --role operator
  treadle keys list
  treadle keys revoke ci"""

Work = Callable[["Store", "Keyring", argparse.Namespace], Awaitable[int]]


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.set_defaults(all=False)
    command.add_journal_flags(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    create = actions.add_parser("create", help="make a key and print it, once", argument_default=argparse.SUPPRESS)
    create.add_argument("name", metavar="NAME", help="what it is called in lists and decisions")
    _describe_create(create)
    listing = actions.add_parser("list", help="list the keys (default)", argument_default=argparse.SUPPRESS)
    listing.add_argument("--all", action="store_true", default=False, help="also those that are revoked or expired")
    revoke = actions.add_parser("revoke", help="take a key away, for ever", argument_default=argparse.SUPPRESS)
    revoke.add_argument("key", metavar="KEY", help="its id or its name")
    for inner in (create, listing, revoke):
        command.add_journal_flags(inner)


def _describe_create(create: argparse.ArgumentParser) -> None:
    for name, example in (("apis", "chat,responses"), ("models", "gpt-*"), ("tools", "get_*,mcp:files")):
        words = f"{name} it may use, such as {example}"
        create.add_argument(f"--{name}", dest=f"may_{name}", metavar="LIST", default="*", help=words)
    create.add_argument("--role", choices=ROLES, default="none", help="what it may do of everybody's (default: none)")
    create.add_argument("--expires", metavar="SPAN", default=None, help="after 90m, 12h, 30d or 4w it is no more")
    numbers = {"rpm": "requests per minute", "tpm": "tokens per minute", "runs": "runs at once"}
    for name, what in numbers.items():
        create.add_argument(f"--{name}", type=int, metavar="N", default=0, help=f"{what} (0: as the settings say)")
    create.add_argument("--budget-usd", type=float, metavar="USD", default=0.0, help="what it may cost in a period")
    create.add_argument("--budget-tokens", type=int, metavar="N", default=0, help="tokens it may use in a period")
    create.add_argument("--period", choices=PERIODS, default="total", help="of the budget, in UTC (default: total)")


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    from treadle.server.auth.installation_secret import secret_for, stored_secret

    work = _ACTIONS[args.action or "list"]
    settings = command.read_flags(args).settings
    span_s = _read_span(args.expires) if args.action == "create" else None
    args.expires_s = span_s

    async def main(store: "Store") -> int:
        from treadle.access.keyring import Keyring
        from treadle.runtime import RandomIds

        pepper = secret_for("keys", stored_secret(settings))
        clock = await opened.clock_of(store)
        proved = store.replicas.note_secret
        return await work(store, Keyring(store.keys, pepper, clock=clock, ids=RandomIds(), proved=proved), args)

    return opened.with_store(args, main, may_create=args.action == "create")


async def _create(store: "Store", keyring: "Keyring", args: argparse.Namespace) -> int:
    from treadle.access.key_views import MadeKey

    row, token = await keyring.create(args.name, _grant(args), expires_in_s=args.expires_s)
    if args.json:
        command.print_json(MadeKey(**msgspec.structs.asdict(await _view(store, row)), key=token.text))
        return command.OK
    print(f"{row.id}: keep this key, it is shown only now", file=sys.stderr)
    print(token.text)
    return command.OK


async def _list(store: "Store", keyring: "Keyring", args: argparse.Namespace) -> int:
    views = [await _view(store, row) for row in await _every(keyring)]
    shown = [view for view in views if args.all or view.state == "active"]
    if args.json:
        command.print_json({"keys": shown})
        return command.OK
    if shown:
        head = ("key", "name", "state", "expires", "may", "used", "of")
        for line in opened.aligned([head, *(_cells(view) for view in shown)]):
            print(clean(line))
    more = f", {len(views) - len(shown)} more with --all" if len(views) > len(shown) else ""
    print(f"{plural(len(shown), 'key')}{more}")
    return command.OK


async def _every(keyring: "Keyring") -> list["KeyRow"]:
    """Return all keys, a page at a time."""
    rows = page = await keyring.page(LIMIT)
    while len(page) == LIMIT:
        page = await keyring.page(LIMIT, before=rows[-1].id)
        rows = [*rows, *page]
    return rows


async def _revoke(store: "Store", keyring: "Keyring", args: argparse.Namespace) -> int:
    from treadle.access.key_revocation import stop_runs

    row = await keyring.revoke(args.key)
    stopped = await stop_runs(store, row.id)
    if args.json:
        command.print_json(await _view(store, row))
    else:
        runs = f"; {plural(stopped, 'run')} of it will be cancelled" if stopped else ""
        print(f"{row.id} ({clean(row.name)}) is revoked{runs}")
    return command.OK


_ACTIONS: dict[str, Work] = {"create": _create, "list": _list, "revoke": _revoke}


def _grant(args: argparse.Namespace) -> "KeyGrant":
    from treadle.journal.keys_interface import KeyBudget, KeyGrant, KeyRates

    return KeyGrant(
        apis=_names(args.may_apis),
        models=_names(args.may_models),
        tools=_names(args.may_tools),
        role=args.role,
        rates=KeyRates(requests_per_min=args.rpm, tokens_per_min=args.tpm, runs_max=args.runs),
        budget=KeyBudget(tokens=args.budget_tokens, usd=args.budget_usd, period=args.period),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _read_span(text: str | None) -> float | None:
    """Read a span such as 30d.

    Raises: ConfigError.
    """
    if text is None:
        return None
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} is no span of time", param="--expires", hint="such as 90m, 12h, 30d or 4w")
    return int(found[1]) * _UNITS_S[found[2]]


async def _view(store: "Store", row: "KeyRow") -> "KeyView":
    from treadle.access.budgets import BudgetLedger
    from treadle.access.key_views import view_of

    return await view_of(row, BudgetLedger(store.keys), (await opened.clock_of(store)).now())


def _cells(view: "KeyView") -> tuple[str, ...]:
    expires = "" if view.expires_at is None else f"{datetime.fromtimestamp(view.expires_at, UTC):%Y-%m-%d}"
    scopes = [f"{name} {','.join(getattr(view, name))}" for name in ("apis", "models", "tools")]
    may = [scope for scope in scopes if not scope.endswith(" *")]
    may += [view.role] if view.role != "none" else []
    spent, budget = view.used[view.budget.period], view.budget
    used = f"{plural(spent.runs, 'run')}, {spent.tokens} tokens, ${spent.usd:.2f}"
    bounds = [f"{budget.tokens} tokens"] if budget.tokens else []
    bounds += [f"${budget.usd:.2f}"] if budget.usd else []
    of = f"{' and '.join(bounds)} in the {budget.period}".replace("in the total", "in all") if bounds else ""
    return view.id, view.name, view.state, expires, "; ".join(may) or "everything", used, of
