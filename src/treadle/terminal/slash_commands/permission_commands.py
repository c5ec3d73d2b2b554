"""Slash commands for permissions and facts: the policy, remembered permissions, proposals."""

from treadle.core.errors import NotFound
from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.conversation.host_interface import ProposalInfo
from treadle.terminal.permissions.permission_policy import MODES, Mode

_CHOSEN: dict[str, Mode] = {mode: mode for mode in MODES if mode != "trust"}


async def policy(chat: ChatLoop, argument: str) -> None:
    """Show the policy, or change it; `trust` is only for the configuration and the command line."""
    if argument in _CHOSEN:
        chat.policy.mode = _CHOSEN[argument]
    elif argument:
        chat.screen.print_line(f"there is no policy {argument}")
    mode = chat.policy.mode
    chat.screen.print_line(f"policy {mode}: {MODES[mode]}")
    others = ", ".join(name for name in _CHOSEN if name != mode)
    chat.screen.print_line(f"/policy {others} or Shift-Tab changes it", "dim")


async def approve(chat: ChatLoop, argument: str) -> None:
    """Show what is remembered, or forget one of it by its number."""
    allowances = chat.policy.allowances
    rules = [*(("session", rule) for rule in allowances.session), *(("project", rule) for rule in allowances.project)]
    verb, _, number = argument.partition(" ")
    if verb == "forget" and number.isdigit() and 1 <= int(number) <= len(rules):
        _, rule = rules[int(number) - 1]
        try:
            allowances.remove(rule)
        except OSError as error:
            chat.screen.print_line(f"✗ {error.strerror or error}", "error")
            return
        chat.screen.print_line(f"forgotten: {rule.words}")
        return
    for index, (scope, rule) in enumerate(rules, 1):
        chat.screen.print_line(f"  {index}  {scope}  {rule.tool}: {rule.words}")
    chat.screen.print_line(
        "/approve forget NUMBER takes one back" if rules else "nothing is remembered; s or p at a question does"
    )


async def facts(chat: ChatLoop, argument: str) -> None:
    """Show the open proposals of facts."""
    found = await chat.conversation.host.proposals()
    for proposal in found:
        chat.screen.print_line("\n".join(proposal.lines))
    if found:
        chat.screen.print_line("/confirm ID makes one fact, /reject ID WHY refuses it", "dim")
    else:
        chat.screen.print_line("nothing is proposed")


async def confirm(chat: ChatLoop, argument: str) -> None:
    """Confirm a proposal as it was shown."""
    proposal = await _find(chat, argument)
    chat.screen.print_line("\n".join(proposal.lines))
    await chat.conversation.host.confirm(proposal)
    chat.screen.print_line(f"{proposal.id} is fact now")


async def reject(chat: ChatLoop, argument: str) -> None:
    """Reject a proposal with a reason."""
    name, _, reason = argument.partition(" ")
    proposal = await _find(chat, name)
    await chat.conversation.host.reject(proposal, reason.strip())
    chat.screen.print_line(f"{proposal.id} is rejected; the model reads why")


async def _find(chat: ChatLoop, name: str) -> ProposalInfo:
    """Return a proposal by its id or the beginning of it; without a name the only one there is.

    Raises: NotFound.
    """
    found = await chat.conversation.host.proposals()
    fitting = [each for each in found if each.id.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise NotFound(
            f"there is no open proposal {name!r}" if name else "nothing is proposed", hint="/facts lists them"
        )
    raise NotFound(f"which one? There are {len(fitting)}", hint="/facts lists them; name one by its id")
