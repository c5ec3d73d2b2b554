"""Slash commands that show something: help, status, tools, results, the last answer, traces."""

import msgspec

from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.conversation.usage_totals import cost_text, time_text, tokens_text
from treadle.terminal.rendering.event_messages import in_columns, plural
from treadle.terminal.rendering.styles import THEMES

_TRACED = frozenset(
    {"plan", "reply", "tool_call", "tool_start", "tool_result", "approval_request", "approval_decision"}
)


async def help_(chat: ChatLoop, argument: str) -> None:
    """List the commands and the keys."""
    width = chat.face.size()[0] if chat.screen.text_style.rich else None
    lines = in_columns(
        [(f"{name} {slash.takes}".strip(), slash.summary) for name, slash in chat.commands.items()], width
    )
    more = [
        "",
        "  !COMMAND runs a command as you; !! adds what it wrote to your next message",
        "  @file, #earlier: Tab",
    ]
    keys: list[str] = []
    if chat.screen.text_style.rich:
        from treadle.terminal.editor.key_bindings import help_rows

        keys = ["", *in_columns(help_rows(), width)]
    for line in [*lines, *more, *keys]:
        chat.screen.print_line(line or " ")


async def status(chat: ChatLoop, argument: str) -> None:
    """Show the state of the conversation: server, model, session, policy."""
    conversation, policy = chat.conversation, chat.policy
    session, level = conversation.session, policy.sandbox
    rows = [
        ("model", conversation.model),
        ("policy", policy.mode),
        ("sandbox", "unknown" if level is None else f"L{level}"),
        ("folder", chat.root),
        ("held", conversation.host.place or "in this process"),
        ("session", f"{session.name} ({session.id})" if session else "begins with the first message"),
        ("last run", conversation.run_id or "none"),
        ("turns", str(chat.totals.turns)),
    ]
    chat.screen.print_line("\n".join(f"  {name:<9}{value}" for name, value in rows))


async def cost(chat: ChatLoop, argument: str) -> None:
    """Show what this terminal has used."""
    totals, usage = chat.totals, chat.totals.usage
    lines = [f"  {plural(totals.turns, 'turn')}, {plural(totals.calls, 'call')}, {tokens_text(usage)}"]
    if usage is not None:
        lines.append(f"  {usage.input_tokens} in ({usage.cached_tokens} cached), {usage.output_tokens} out")
    hint = "; [[price]] in treadle.toml names what a model costs" if totals.has_unpriced else ""
    lines.append(f"  {cost_text(totals.cost)}{hint}")
    lines.append(f"  the last turn took {time_text(totals.last_s)}")
    chat.screen.print_line("\n".join(lines))


async def tools(chat: ChatLoop, argument: str) -> None:
    """List the tools."""
    found = await chat.conversation.host.tools()
    lines = [f"  {tool.name} ({tool.policy.effect}): {tool.spec.description.split(chr(10))[0]}" for tool in found]
    chat.screen.print_line("\n".join(lines) or "no tools")


async def model(chat: ChatLoop, argument: str) -> None:
    """Show the model, or change it."""
    conversation = chat.conversation
    if not argument:
        known = ", ".join(await conversation.host.models())
        chat.screen.print_line(f"model {conversation.model}; known: {known or 'whatever the upstream serves'}")
        return
    await conversation.host.check_model(argument)
    conversation.model = argument
    chat.screen.print_line(f"model {argument} from now on")


async def full(chat: ChatLoop, argument: str) -> None:
    """Show more of a folded result."""
    chat.screen.unfold()


async def raw(chat: ChatLoop, argument: str) -> None:
    """Show the last answer as the model wrote it."""
    chat.screen.print_line(chat.screen.answer or "there is no answer yet")


async def copy(chat: ChatLoop, argument: str) -> None:
    """Copy the last answer by the terminal's own clipboard sequence (OSC 52)."""
    if not chat.screen.answer:
        chat.screen.print_line("there is no answer yet")
    elif chat.face.copy(chat.screen.answer):
        chat.screen.print_line("copied, if the terminal allows it")
    else:
        chat.screen.print_line("this terminal has no clipboard; /raw shows the text")


async def theme(chat: ChatLoop, argument: str) -> None:
    """Show the themes, or take one."""
    if argument not in THEMES:
        now = f"there is no theme {argument}" if argument else f"theme {chat.screen.text_style.theme}"
        chat.screen.print_line(f"{now}; there are {', '.join(THEMES)}")
        return
    chat.screen.text_style = msgspec.structs.replace(chat.screen.text_style, theme=argument)
    chat.screen.print_line(f"theme {argument}: ", "call")


async def redraw(chat: ChatLoop, argument: str) -> None:
    """Draw the screen again."""
    chat.face.redraw()


async def trace(chat: ChatLoop, argument: str) -> None:
    """Show the steps of the last run, or of the one that is named."""
    run_id = argument or chat.conversation.run_id
    if not run_id:
        chat.screen.print_line("nothing was run yet; /trace RUN shows another run")
        return
    entries = await chat.conversation.host.run_entries(run_id)
    began = entries[0].at if entries else 0.0
    chat.screen.print_line(f"{run_id}, {plural(len(entries), 'entry').replace('entrys', 'entries')}")
    for entry in entries:
        if entry.kind in _TRACED:
            text = " ".join((entry.content or entry.name or "").split())
            chat.screen.print_line(f"  {entry.at - began:7.3f} s  {entry.kind:<17} {text[:200]}", "dim")
    chat.screen.print_line(f"treadle plan {run_id} shows what was sent, treadle replay {run_id} proves it", "dim")
