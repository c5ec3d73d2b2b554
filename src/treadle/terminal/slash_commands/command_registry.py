"""The table of slash commands: summary, arguments, and whether each waits for the turn."""

from treadle.terminal.conversation.chat_loop import Slash
from treadle.terminal.slash_commands import permission_commands as consent
from treadle.terminal.slash_commands import session_commands as sessions
from treadle.terminal.slash_commands import view_commands as view
from treadle.terminal.slash_commands import workspace_commands as work

COMMANDS: dict[str, Slash] = {
    "/help": Slash(summary="list the commands and keys", do=view.help_, is_instant=True),
    "/status": Slash(summary="tell where and how this conversation is held", do=view.status, is_instant=True),
    "/model": Slash(summary="show the model, or change it", takes="[NAME]", do=view.model),
    "/tools": Slash(summary="list the tools that Treadle runs", do=view.tools, is_instant=True),
    "/cost": Slash(summary="tell tokens, money and time", do=view.cost, is_instant=True),
    "/policy": Slash(
        summary="show what runs unasked, or change it", takes="[plan|ask|auto-edit]", do=consent.policy, is_instant=True
    ),
    "/approve": Slash(
        summary="list what is remembered, or take one back", takes="[forget N]", do=consent.approve, is_instant=True
    ),
    "/facts": Slash(summary="list proposals of facts", do=consent.facts, is_instant=True),
    "/confirm": Slash(summary="make a proposal fact", takes="[ID]", do=consent.confirm, is_instant=True),
    "/reject": Slash(summary="refuse a proposal", takes="ID [WHY]", do=consent.reject, is_instant=True),
    "/full": Slash(summary="show more of a folded result", do=view.full, is_instant=True),
    "/raw": Slash(summary="show the last answer as it was written", do=view.raw),
    "/copy": Slash(summary="copy the last answer", do=view.copy),
    "/diff": Slash(summary="show what changed in the folder", takes="[PATH]", do=work.diff, is_instant=True),
    "/trace": Slash(summary="show the steps of a run", takes="[RUN]", do=view.trace, is_instant=True),
    "/sessions": Slash(summary="list or search conversations", takes="[TEXT]", do=sessions.sessions, is_instant=True),
    "/resume": Slash(summary="go on with one", takes="[NAME|ID]", do=sessions.resume),
    "/new": Slash(summary="begin a new conversation", do=sessions.new),
    "/clear": Slash(summary="begin a new one on an empty screen", do=sessions.clear),
    "/fork": Slash(summary="go on from here under another name", takes="[NAME]", do=sessions.fork),
    "/undo": Slash(summary="take the last turn back, in a fork", do=sessions.undo),
    "/compact": Slash(summary="begin anew with a summary", takes="[WISH]", do=sessions.compact),
    "/rename": Slash(summary="give the conversation a name", takes="NAME", do=sessions.rename, is_instant=True),
    "/delete": Slash(summary="forget a conversation", takes="NAME|ID", do=sessions.delete),
    "/export": Slash(summary="write it down", takes="FILE.md|FILE.jsonl", do=sessions.export),
    "/ps": Slash(summary="list the runs that are going on", do=work.ps, is_instant=True),
    "/kill": Slash(summary="end a run", takes="RUN", do=work.kill, is_instant=True),
    "/theme": Slash(summary="show the themes, or take one", takes="[NAME]", do=view.theme, is_instant=True),
    "/redraw": Slash(summary="draw the screen again", do=view.redraw, is_instant=True),
    "/quit": Slash(summary="leave", do=work.quit_),
}
