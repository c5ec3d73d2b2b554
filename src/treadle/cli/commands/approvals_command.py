"""`treadle approvals`: list pending calls, show one, approve or deny it, and manage remembered rules.

It writes to the store, so any server on the same store that waits for the decision gets it.
"""

import argparse
import getpass
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.core.errors import NotFound, RequestError
from treadle.terminal.rendering.event_messages import plural, short_span
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.journal.approvals_interface import ApprovalRow, RuleRow
    from treadle.journal.journal_interface import Store
    from treadle.runs.approvals.decisions import Approvals, Remember

LIMIT = 50
SHOWN_CHARS = 60
EPILOG = """\
Without an action those that wait are listed. A call runs as you read it: approving it with --digest makes sure.

examples:
  treadle approvals
  treadle approvals show APPROVAL
  treadle approvals approve APPROVAL
  treadle approvals approve APPROVAL --arguments '{"path": "/tmp/x"}'
  treadle approvals approve APPROVAL --remember tool
  treadle approvals approve APPROVAL --remember pattern --pattern 'path=/tmp/*' --scope project
  treadle approvals deny APPROVAL --reason "not today"
  treadle approvals rules
  treadle approvals forget RULE

exit codes: 0 done, 1 it was decided already or is not there"""

Work = Callable[["Approvals", argparse.Namespace], Awaitable[int]]


_WORDS = {"approval": "the id of a question, as the list shows it", "rule": "the id of a rule"}


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.set_defaults(all=False, run=None, limit=LIMIT)
    command.add_journal_flags(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")

    def action(name: str, help_text: str, *names: str) -> argparse.ArgumentParser:
        inner = actions.add_parser(name, help=help_text, argument_default=argparse.SUPPRESS)
        for each in names:
            inner.add_argument(each, metavar=each.upper(), help=_WORDS[each])
        command.add_journal_flags(inner)
        return inner

    listing = action("list", "list the calls that wait (default)")
    listing.add_argument("--all", action="store_true", default=False, help="also those that are decided")
    listing.add_argument("--run", metavar="RUN", default=None, help="only those of a run")
    listing.add_argument("-n", "--limit", type=int, default=LIMIT, help=f"how many at most (default: {LIMIT})")
    action("show", "print one whole", "approval")
    _describe_approve(action("approve", "let a call run", "approval"))
    deny = action("deny", "keep a call from running", "approval")
    deny.add_argument("--reason", metavar="TEXT", default="", help="what the model is told")
    action("rules", "list what is agreed to without asking")
    action("forget", "take a rule away", "rule")


def _describe_approve(approve: argparse.ArgumentParser) -> None:
    approve.add_argument("--reason", metavar="TEXT", default="", help="why, for the journal")
    approve.add_argument("--arguments", metavar="JSON", default=None, help="run it with these; or @FILE")
    approve.add_argument("--digest", metavar="SHA256", default=None, help="refuse unless it is still this very call")
    approve.add_argument(
        "--remember", choices=("call", "tool", "pattern"), default=None, help="agree to such calls from now on"
    )
    approve.add_argument(
        "--scope", choices=("session", "project"), default="session", help="where that holds (default: session)"
    )
    approve.add_argument(
        "--pattern", action="append", metavar="NAME=GLOB", default=None, help="an argument that must fit (repeatable)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    work = _ACTIONS[args.action or "list"]

    async def main(store: "Store") -> int:
        from treadle.runs.approvals.decisions import Approvals
        from treadle.runtime import RandomIds

        clock = await opened.clock_of(store)
        # What is left is counted by the clock that approvals expire by.
        args.now = clock.now()
        return await work(Approvals(store, clock, RandomIds()), args)

    return opened.with_store(args, main)


async def _list(approvals: "Approvals", args: argparse.Namespace) -> int:
    status = None if args.all else "pending"
    rows = await approvals.page(args.limit, status=status, run_id=args.run)
    if args.json:
        command.print_json({"approvals": rows})
        return command.OK
    if rows:
        cells = [("approval", "status", "left", "call"), *(_cells(row, args.now) for row in rows)]
        for line in opened.aligned(cells):
            print(clean(line))
    words = plural(len(rows), "approval") if args.all else f"{plural(len(rows), 'call')} waiting"
    print(words)
    return command.OK


def _cells(row: "ApprovalRow", now: float) -> tuple[str, str, str, str]:
    left = short_span(row.expires_at - now) if row.status == "pending" else ""
    call = f"{row.question.tool} {row.question.arguments}"
    shown = call if len(call) <= SHOWN_CHARS else f"{call[: SHOWN_CHARS - 1]}…"
    return row.id, row.status, left, shown


async def _show(approvals: "Approvals", args: argparse.Namespace) -> int:
    row = await approvals.find(args.approval)
    _print_row(row, args)
    return command.OK


async def _approve(approvals: "Approvals", args: argparse.Namespace) -> int:
    from treadle.runs.approvals.decisions import Answer

    answer = Answer(
        approve=True,
        by=_who(),
        reason=args.reason,
        arguments=_arguments(args.arguments),
        digest=args.digest,
        remember=_remember(args),
    )
    _print_row(await approvals.decide(args.approval, answer), args)
    return command.OK


async def _deny(approvals: "Approvals", args: argparse.Namespace) -> int:
    from treadle.runs.approvals.decisions import Answer

    _print_row(await approvals.decide(args.approval, Answer(approve=False, by=_who(), reason=args.reason)), args)
    return command.OK


async def _rules(approvals: "Approvals", args: argparse.Namespace) -> int:
    rows = await approvals.rules()
    if args.json:
        command.print_json({"rules": rows})
        return command.OK
    for row in rows:
        print(clean(f"{row.id}  {_rule_words(row)}"))
    print(plural(len(rows), "rule"))
    return command.OK


def _rule_words(row: "RuleRow") -> str:
    rule = row.rule
    where = f"in session {row.session_id}" if row.session_id is not None else f"in {rule.project}"
    what = {"tool": "every call", "call": f"the call {rule.digest[:12]}"}.get(rule.kind)
    return f"{rule.tool}: {what or ', '.join(f'{name}={glob}' for name, glob in rule.patterns.items())}, {where}"


async def _forget(approvals: "Approvals", args: argparse.Namespace) -> int:
    await approvals.forget_rule(args.rule)
    if args.json:
        command.print_json({"id": args.rule, "deleted": True})
    else:
        print(clean(f"{args.rule} forgotten"))
    return command.OK


def _print_row(row: "ApprovalRow", args: argparse.Namespace) -> None:
    if args.json:
        command.print_json(row)
        return
    question, decision = row.question, row.decision
    lines = [
        f"{row.id}  {row.status}",
        f"tool       {question.tool} ({question.source})",
        f"arguments  {question.arguments}",
        f"why        {'; '.join(question.reasons)}",
        f"run        {row.run_id}",
        f"digest     {question.digest}",
    ]
    if row.status == "pending":
        when = datetime.fromtimestamp(row.expires_at).astimezone()
        lines.append(f"expires    {when:%Y-%m-%d %H:%M:%S %Z}, in {short_span(row.expires_at - args.now)}")
    if decision is not None and decision.by:
        lines.append(f"by         {decision.by}{f': {decision.reason}' if decision.reason else ''}")
    if decision is not None and decision.arguments is not None:
        lines.append(f"runs with  {decision.arguments}")
    for line in lines:
        print(clean(line))


def _arguments(text: str | None) -> str | None:
    """Return the arguments to run with, perhaps from a file. Raises: NotFound."""
    if text is None or not text.startswith("@"):
        return text
    file = Path(text[1:])
    if not file.is_file():
        raise NotFound(f"there is no file {file}", param="arguments")
    return file.read_text(encoding="utf-8")


def _remember(args: argparse.Namespace) -> "Remember | None":
    """Return the rule that is wanted. Raises: RequestError."""
    from treadle.runs.approvals.decisions import Remember

    pairs = [each.partition("=") for each in args.pattern or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise RequestError(f"--pattern {name!r} is not NAME=GLOB", param="pattern", hint="--pattern 'path=/tmp/*'")
    if args.remember is None:
        if pairs:
            raise RequestError("--pattern needs --remember pattern", param="pattern")
        return None
    return Remember(kind=args.remember, scope=args.scope, patterns={name: glob for name, _, glob in pairs})


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "terminal"


_ACTIONS: dict[str, Work] = {
    "list": _list,
    "show": _show,
    "approve": _approve,
    "deny": _deny,
    "rules": _rules,
    "forget": _forget,
}
