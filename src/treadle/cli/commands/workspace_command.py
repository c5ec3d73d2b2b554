"""`treadle ws`: create, read, patch and lock workspaces, decide proposals, and view or restore their history."""

import argparse
import getpass
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.core.errors import NotApproved, RequestError, WorkspaceConflict
from treadle.core.json import BadJson, read_json
from treadle.terminal.rendering.proposal_card import diff_lines, review_lines, when
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.journal.journal_interface import Store
    from treadle.workspace.proposal_review import Review
    from treadle.workspace.workspace_service import Workspaces
    from treadle.workspace.workspace_state import WorkspaceRecord
    from treadle.workspace.workspace_store import Author, ProposalStanding, Taken

LIMIT = 50
EPILOG = """\
Without an action the workspaces are listed. One is named by its id or its name; paths are JSON Pointers
(/draft/title), values are JSON, and what is not JSON is taken as text.

examples:
  treadle ws new card --draft card.json
  treadle ws show card /draft
  treadle ws set card /draft/title "The smith"
  treadle ws lock card /draft/title
  treadle ws proposals card
  treadle ws confirm card PROPOSAL
  treadle ws reject card PROPOSAL --reason "that is her sister"
  treadle ws history card --diff
  treadle ws restore card 12"""

Work = Callable[["Workspaces", argparse.Namespace], Awaitable[int]]


_WORDS = {
    "workspace": "its id or name",
    "name": "its name",
    "path": "a JSON Pointer, such as /draft/title",
    "value": "JSON; what is no JSON is taken as text",
    "start": "the version to compare from",
    "version": "the version to bring back",
    "proposal": "the id of a proposal",
}


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.set_defaults(limit=LIMIT)
    command.add_journal_flags(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")

    def action(name: str, help_text: str, *names: str) -> argparse.ArgumentParser:
        inner = actions.add_parser(name, help=help_text, argument_default=argparse.SUPPRESS)
        for each in names:
            inner.add_argument(each, metavar=each.upper(), help=_WORDS[each])
        command.add_journal_flags(inner)
        return inner

    action("list", "list them, the one changed last first (default)")
    new = action("new", "make one", "name")
    for section in ("facts", "draft", "ui"):
        new.add_argument(f"--{section}", metavar="JSON", default=None, help="an object, or a file with one")
    new.add_argument("--session", metavar="SESSION", default=None, help="one whose runs work on it")
    show = action("show", "print one, or a part of it", "workspace")
    show.add_argument("path", metavar="PATH", nargs="?", default="", help="a JSON Pointer")
    for name, help_text in (("set", "set a value in the draft"), ("append", "add to an array in the draft")):
        _signed(action(name, help_text, "workspace", "path", "value"))
    _signed(action("insert", "put a value before an element in the draft", "workspace", "path", "value"))
    _signed(action("delete", "take a value out of the draft", "workspace", "path"))
    _signed(action("lock", "hold a value until it is unlocked", "workspace", "path"))
    _signed(action("unlock", "let a value change again", "workspace", "path"))
    _describe_decisions(action)
    history = action("history", "list what happened, newest first", "workspace")
    history.add_argument("--diff", action="store_true", default=False, help="with what changed")
    history.add_argument("-n", "--limit", type=int, default=LIMIT, help=f"how many at most (default: {LIMIT})")
    diff = action("diff", "compare two versions", "workspace", "start")
    diff.add_argument("end", metavar="END", nargs="?", default=None, help="without one, as it is now")
    restore = action("restore", "bring a version back, as a new one", "workspace", "version")
    sections = ("facts", "draft", "ui")
    help_text = "bring back only this part (may be repeated)"
    restore.add_argument("--section", action="append", choices=sections, default=None, help=help_text)
    _signed(restore)
    action("audit", "prove that the history leads to the state", "workspace")
    action("rename", "give one another name", "workspace", "name")
    action("forget", "delete one, with its history and proposals", "workspace")


def _describe_decisions(action: Callable[..., argparse.ArgumentParser]) -> None:
    proposals = action("proposals", "list the proposals that wait", "workspace")
    proposals.add_argument("--all", action="store_true", default=False, help="also those that are decided")
    confirm = action("confirm", "make a proposal fact, once you have read it", "workspace", "proposal")
    confirm.add_argument("--version", type=int, default=None, help="the version of the facts that you have seen")
    confirm.add_argument("--only", default=None, metavar="N,N", help="take only these changes, counted from 1")
    confirm.add_argument(
        "--set", action="append", default=None, metavar="PATH=JSON", help="take this instead (may be repeated)"
    )
    confirm.add_argument("-y", "--yes", action="store_true", default=False, help="do not ask")
    _signed(confirm)
    _signed(action("reject", "say no to a proposal; the model reads the reason", "workspace", "proposal"))


def _signed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--reason", default="", help="why")
    parser.add_argument("--by", default=None, help="who you are (default: your user name)")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    work = _ACTIONS[args.action or "list"]

    async def main(store: "Store") -> int:
        from treadle.journal.session_operations import get_session

        if vars(args).get("session"):
            args.session = (await get_session(store, args.session, key_id=None)).id
        return await work(await _open_workspaces(store), args)

    return opened.with_store(args, main, may_create=args.action == "new")


async def _open_workspaces(store: "Store") -> "Workspaces":
    from treadle.runtime import RandomIds
    from treadle.workspace.workspace_service import Workspaces

    clock = await opened.clock_of(store)
    return Workspaces(store, ids=RandomIds(), clock=clock.now, key_id=None)


async def _list(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    rows = await workspaces.page(max(1, args.limit))
    if args.json:
        names = ("id", "name", "version", "session_id", "created_at", "updated_at")
        command.print_json([{name: getattr(row, name) for name in names} for row in rows])
    elif not rows:
        print("no workspaces yet")
    else:
        cells = [("name", "version", "changed", "id")]
        cells += [(row.name or "-", str(row.version), when(row.updated_at), row.id) for row in rows]
        _print_lines(opened.aligned(cells))
    return command.OK


async def _new(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    sections: Any = {name: _object(getattr(args, name), name) for name in ("facts", "draft", "ui")}
    given = {name: value for name, value in sections.items() if value is not None}
    held = await workspaces.create(args.name, sections=given, session_id=args.session, author=_author(args))
    return _print(args, f"{held.row.name} is {held.row.id}", {"id": held.row.id, "name": held.row.name})


async def _show(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    held = await workspaces.get(args.workspace)
    command.print_json(held.workspace.get(args.path))
    return command.OK


async def _patch(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    from treadle.workspace.workspace_state import Change

    value = _value(args.value) if "value" in vars(args) else None
    change = Change(path=args.path, op=args.action, value=value)
    return _print_result(args, await workspaces.patch_draft(args.workspace, [change], author=_author(args)))


async def _lock(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    change_lock = workspaces.lock if args.action == "lock" else workspaces.unlock
    return _print_result(args, await change_lock(args.workspace, args.path, author=_author(args)))


async def _proposals(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    standings = await workspaces.standings(args.workspace, status=None if args.all else "open")
    reviews = [await workspaces.review(args.workspace, each.proposal.id) for each in standings if each.status == "open"]
    decided = [each for each in standings if each.status != "open"]
    if args.json:
        command.print_json({"open": reviews, "decided": decided})
    elif not standings:
        print("nothing waits for a decision")
    else:
        for each in reviews:
            _print_lines(review_lines(each))
        for each in decided:
            _print_lines(_standing_lines(each))
    return command.OK


async def _confirm(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    from treadle.workspace.workspace_service import Consent

    review = await workspaces.review(args.workspace, args.proposal)
    only = None if args.only is None else _numbers(args.only)
    changes = None if args.set is None else tuple(_assigned(each) for each in args.set)
    version = review.facts_version if args.version is None else args.version
    if review.obstacle and only is None and changes is None:
        _refuse(review, args)
    if args.version is None and not args.yes:
        _ask(review)
    consent = Consent(version=version, only=only, changes=changes, sha256=review.sha256)
    try:
        taken = await workspaces.confirm(args.workspace, args.proposal, consent, author=_author(args))
    except WorkspaceConflict:
        if not args.json:
            _print_lines(review_lines(await workspaces.review(args.workspace, args.proposal)))
        raise
    return _print_result(args, taken)


async def _reject(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    return _print_result(args, await workspaces.reject(args.workspace, args.proposal, author=_author(args)))


async def _history(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    records = await workspaces.history(args.workspace, limit=max(1, args.limit))
    if args.json:
        command.print_json(records)
    else:
        for record in records:
            _print_lines(_record_lines(record, has_diff=args.diff))
    return command.OK


async def _diff(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    end = None if args.end is None else _version(args.end)
    differences = await workspaces.diff(args.workspace, _version(args.start), end)
    if args.json:
        command.print_json(differences)
    else:
        _print_lines(diff_lines(differences))
    return command.OK


async def _restore(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    from treadle.workspace.workspace_state import SECTIONS

    sections = args.section or SECTIONS
    version = _version(args.version)
    return _print_result(
        args, await workspaces.restore(args.workspace, version, author=_author(args), sections=sections)
    )


async def _audit(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    finding = await workspaces.audit(args.workspace)
    if args.json:
        command.print_json(finding)
    else:
        _print_lines([*finding.problems, f"{finding.versions} versions, {len(finding.problems)} problems"])
    return command.ERROR if finding.problems else command.OK


async def _rename(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    held = await workspaces.update(args.workspace, name=args.name)
    return _print(args, f"{args.workspace} is now {held.row.name}", {"id": held.row.id, "name": held.row.name})


async def _forget(workspaces: "Workspaces", args: argparse.Namespace) -> int:
    held = await workspaces.get(args.workspace)
    await workspaces.delete(held.row.id)
    return _print(args, f"{held.row.name or held.row.id} is gone", {"deleted": held.row.id})


_ACTIONS: dict[str, Work] = {
    "list": _list,
    "new": _new,
    "show": _show,
    "set": _patch,
    "append": _patch,
    "insert": _patch,
    "delete": _patch,
    "lock": _lock,
    "unlock": _lock,
    "proposals": _proposals,
    "confirm": _confirm,
    "reject": _reject,
    "history": _history,
    "diff": _diff,
    "restore": _restore,
    "audit": _audit,
    "rename": _rename,
    "forget": _forget,
}


def _refuse(review: "Review", args: argparse.Namespace) -> None:
    """Report why a proposal cannot be confirmed in its present state, instead of asking about it.

    Raises: WorkspaceConflict.
    """
    if not args.json:
        _print_lines(review_lines(review))
    raise WorkspaceConflict(
        f"proposal `{review.proposal.id}` cannot be confirmed as it is: {review.obstacle}",
        param="proposal",
        hint="`treadle ws reject` drops it; --set PATH=JSON takes what you write in its place",
    )


def _ask(review: "Review") -> None:
    """Show what would become fact and ask; only a terminal can answer.

    Raises: RequestError, NotApproved.
    """
    if not sys.stdin.isatty():
        raise RequestError(
            "nobody can be asked here",
            param="version",
            hint=f"say what you have seen: --version {review.facts_version}, or --yes",
        )
    _print_lines(review_lines(review))
    if input("make it fact? [y/N] ").strip().casefold() not in ("y", "yes"):
        raise NotApproved("nothing was changed")


def _author(args: argparse.Namespace) -> "Author":
    from treadle.workspace.workspace_store import Author

    given = vars(args)
    return Author(actor="person", who=given.get("by") or _user(), reason=given.get("reason", ""))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _print_result(args: argparse.Namespace, taken: "Taken") -> int:
    record = taken.record
    text = "\n".join([f"version {record.version}: {record.kind}", *diff_lines(record.diff)])
    return _print(args, text, record)


def _print(args: argparse.Namespace, text: str, value: object) -> int:
    if args.json:
        command.print_json(value)
    else:
        _print_lines(text.splitlines())
    return command.OK


def _value(text: str) -> Any:
    try:
        return read_json(text)
    except BadJson:
        return text


def _object(text: str | None, name: str) -> Any:
    """Read an object given as JSON or as the name of a file with it.

    Raises: RequestError.
    """
    if text is None:
        return None
    try:
        value = read_json(text if text.lstrip().startswith("{") else Path(text).read_text("utf-8"))
    except (BadJson, OSError, UnicodeDecodeError) as error:
        raise RequestError(f"--{name}: {error}", param=name, hint="an object, or a file that holds one") from None
    if not isinstance(value, dict):
        raise RequestError(f"--{name} is not an object", param=name)
    return cast("dict[str, Any]", value)


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise RequestError(f"--only {text!r} names no changes", param="only", hint="such as 1,3")
    return tuple(int(word) - 1 for word in words)


def _assigned(text: str) -> Any:
    from treadle.workspace.workspace_state import Change

    path, sign, value = text.partition("=")
    if not sign:
        raise RequestError(f"--set {text!r} has no value", param="set", hint='such as /facts/name="Eve"')
    return Change(path=path, value=_value(value))


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise RequestError(f"{text!r} is no version", param="version", hint="a whole number; see `treadle ws history`")
    return int(text)


def _print_lines(lines: Iterable[str]) -> None:
    """Print lines for a person to read."""
    for line in lines:
        print(clean(line))


def _standing_lines(standing: "ProposalStanding") -> list[str]:
    """Return a decided proposal in one or two lines."""
    proposal, decision = standing.proposal, standing.decision
    lines = [f"{proposal.id}  {standing.status}  {len(proposal.changes)} changes  {proposal.reason}".rstrip()]
    lines += [f"  because: {decision.reason}"] if decision is not None and decision.reason else []
    return lines


def _record_lines(record: "WorkspaceRecord", *, has_diff: bool) -> list[str]:
    """Return one version of a history."""
    by = " ".join(word for word in (record.actor, record.who, record.run_id or "") if word)
    what = record.path or record.proposal_id or ("" if record.restored is None else f"version {record.restored}")
    head = f"{record.version:>5}  {when(record.at)}  {record.kind:<9}  {by}  {what}".rstrip()
    lines = [head + (f"  ({record.reason})" if record.reason else "")]
    return lines + (diff_lines(record.diff) if has_diff and record.diff else [])
