"""Slash commands: each says what it did, and acts on what comes next."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from treadle.core.events import RunEvent, TextDelta, ToolFinished
from treadle.core.items import CallItem, text_result
from treadle.core.journal_entries import Entry
from treadle.terminal.conversation import chat_loop as chat
from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.conversation.conversation import Conversation
from treadle.terminal.conversation.host_interface import HostRunInfo, ProposalInfo, SessionInfo
from treadle.terminal.permissions.permission_policy import PermissionPolicy
from treadle.terminal.permissions.remembered_permissions import Allowances, Allowed
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle
from treadle.terminal.slash_commands.command_registry import COMMANDS
from unit.terminal.conversation.fake import FakeFace, FakeHost

PROPOSAL = ProposalInfo(id="prop_1", workspace="ws", version=4, sha256="s", lines=["prop_1 by run", "  + Turku"])


class Talk:
    """A chat with a fake host, and what it shows."""

    def __init__(self, tmp_path: Path, *, rich: bool = False) -> None:
        self.host, self.face = FakeHost(), FakeFace()
        conversation = Conversation(self.host, "m", folder=str(tmp_path))
        screen = RunRenderer(self.face, TextStyle(rich=rich))
        policy = PermissionPolicy("ask", Allowances("/w"), sandbox=3)
        self.chat = ChatLoop(conversation, self.face, screen, policy, COMMANDS, str(tmp_path))

    async def say(self, *lines: str) -> list[str]:
        """Say the lines and return what is shown below each of them."""
        for line in lines:
            self.face.written = ""
            await self.chat.take(line)
        return self.face.written.split("\n")[2:-1]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    """Return a chat."""
    return Talk(tmp_path)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/tools", "  add (write): Add."),
        ("/model", "model m; known: big"),
        ("/model big", "model big from now on"),
        ("/model \x1b[2J", "✗ no model ␛[2J"),
        ("/new", "a new conversation"),
        ("/hepl", "there is no command /hepl; did you mean /help?"),
        ("/zzzz", "there is no command /zzzz; /help lists the commands"),
        ("/full", "nothing is folded"),
        ("/raw", "there is no answer yet"),
        ("/copy", "there is no answer yet"),
        ("/theme", "theme dark; there are dark, light, contrast, none"),
        ("/theme pink", "there is no theme pink; there are dark, light, contrast, none"),
        ("/trace", "nothing was run yet; /trace RUN shows another run"),
        ("/trace gone", "✗ There is no run 'gone'."),
        ("/sessions", "no sessions yet"),
        ("/sessions zzz", "no session holds that"),
        ("/resume gone", "✗ There is no session 'gone'."),
        ("/resume", "✗ there is no conversation of this folder yet"),
        ("/rename", "it has no name yet; /rename NAME"),
        ("/fork", "✗ nothing was said yet in this conversation"),
        ("/undo", "✗ nothing was said yet in this conversation"),
        ("/compact", "nothing was said yet"),
        ("/export x.md", "nothing was said yet"),
        ("/delete", "which one? /delete NAME or ID"),
        ("/delete gone", "✗ There is no session 'gone'."),
        ("/ps", "nothing is going on"),
        ("/kill", "which one? /ps lists them"),
        ("/kill gone", "✗ There is no run 'gone'."),
        ("/facts", "nothing is proposed"),
        ("/confirm", "✗ nothing is proposed"),
        ("/reject x y", "✗ there is no open proposal 'x'"),
        ("/approve", "nothing is remembered; s or p at a question does"),
        ("/policy trust", "there is no policy trust"),
        ("/diff", "nothing"),
        ("!", "!COMMAND runs a command as you; !! adds what the last one wrote to your next message"),
        ("!!", "no command was run yet: !COMMAND"),
    ],
)
async def test_every_command_answers(talk: Talk, line: str, shown: str) -> None:
    """Also when there is nothing to do."""
    first = (await talk.say(line))[0]
    assert first.startswith(shown) if shown != "nothing" else first


async def test_help_lists_every_command(talk: Talk) -> None:
    """Also those that are added later."""
    shown = await talk.say("/help")
    assert [line.split()[0] for line in shown[: len(COMMANDS)]] == list(COMMANDS)


async def test_help_on_a_screen_lists_the_keys(tmp_path: Path) -> None:
    """Where there are keys."""
    assert "Ctrl-R" in "\n".join(await Talk(tmp_path, rich=True).say("/help"))


async def test_help_on_a_narrow_screen_has_each_meaning_below_its_name(tmp_path: Path) -> None:
    """Two columns in which no word fits would not be read."""
    talk = Talk(tmp_path, rich=True)
    talk.face.columns = 40
    shown = await talk.say("/help")
    place = shown.index("  /status")
    assert shown[place + 1 : place + 4] == [
        "      tell where and how this",
        "      conversation is held",
        "  /model [NAME]",
    ]
    assert max(map(len, shown)) <= 40


async def test_a_run_is_asked_to_end_once(talk: Talk) -> None:
    """One that has ended is not asked again."""
    talk.host.rows = [HostRunInfo(id="run_8", status="completed"), HostRunInfo(id="run_9", status="running")]
    assert await talk.say("/kill run_9") == ["run_9 was asked to end"]
    assert await talk.say("/kill run_8") == ["run_8 has ended: completed"]
    assert talk.host.cancelled == ["run_9"]


async def test_commands_change_the_conversation(talk: Talk) -> None:
    """/model and /new act on what comes next; a model nobody serves is not taken."""
    await talk.say("hello", "/model big", "/new", "/model nope", "again")
    assert [(ask.model, ask.session_id) for ask in talk.host.asked] == [("m", "sess_1"), ("big", "sess_2")]


async def test_a_conversation_is_named_forked_listed_and_forgotten(talk: Talk) -> None:
    """By what /sessions shows."""
    assert await talk.say("hello", "/rename trip") == ["this is now trip"]
    assert await talk.say("/fork by car") == ["from now on in by car; the first one stays as it is"]
    listed = await talk.say("/sessions")
    assert [line.split("  ")[-2] for line in listed[:2]] == ["trip", "by car"]
    assert await talk.say("/delete by car") == ["by car is forgotten, with all that was said in it"]
    assert talk.chat.conversation.session is None


async def test_a_conversation_is_resumed_with_what_was_said(talk: Talk) -> None:
    """Its words stand there again."""
    await talk.say("hello there", "/new")
    shown = await talk.say("/resume hello there")
    assert shown[-2:] == ["> hello there", "— resumed: hello there —"]


async def test_undo_takes_the_last_turn_back_and_offers_it_again(talk: Talk) -> None:
    """In a fork; what tools did to files stays, and that is said."""
    await talk.say("one", "two")
    assert (await talk.say("/undo"))[0].startswith("taken back, in one (fork); files that tools changed stay")
    assert talk.face.offered == ["two"]


async def test_compact_begins_anew_with_the_models_summary(talk: Talk) -> None:
    """The next message brings it along."""
    await talk.say("hello")
    shown = await talk.say("/compact keep names")
    assert shown[-1] == "a new conversation begins with this summary; /resume has the old one"
    await talk.say("go on")
    first = talk.host.asked[-1].items[0]
    assert "This is a summary of the conversation so far" in str(first)
    assert "keep names" in str(first)


async def test_an_empty_summary_changes_nothing(talk: Talk) -> None:
    """The old conversation goes on."""
    await talk.say("hello")
    silent: list[RunEvent] = [TextDelta(index=0, text=" ")]
    talk.host.answer = silent
    assert (await talk.say("/compact"))[-1] == "there is no summary; the conversation goes on as it was"
    assert talk.chat.conversation.session is not None


@pytest.mark.parametrize("name", ["talk.md", "talk.jsonl"])
async def test_a_conversation_is_written_down_but_never_over_a_file(talk: Talk, tmp_path: Path, name: str) -> None:
    """By its ending; relative to the folder."""
    await talk.say("hello")
    assert (await talk.say(f"/export {name}"))[0] == f"1 item in {tmp_path / name}"
    assert "hello" in (tmp_path / name).read_text(encoding="utf-8")
    assert "File exists" in (await talk.say(f"/export {name}"))[0]


async def test_the_last_answer_is_shown_and_copied(tmp_path: Path) -> None:
    """As it was written."""
    talk = Talk(tmp_path, rich=True)
    talk.host.answer = [TextDelta(index=0, text="**bold** \x1b]52;c;bad\x07")]
    await talk.say("hello")
    assert "**bold** ␛]52;c;bad␇" in "\n".join(await talk.say("/raw"))
    await talk.say("/copy")
    assert talk.face.deeds == ["copy **bold** \x1b]52;c;bad\x07"]


async def test_the_policy_is_shown_and_changed(talk: Talk) -> None:
    """By its name."""
    assert (await talk.say("/policy plan"))[0].startswith("policy plan: nothing is changed")
    assert talk.chat.policy.mode == "plan"


async def test_what_is_remembered_is_listed_and_taken_back(talk: Talk) -> None:
    """By its number."""
    talk.chat.policy.allowances.add(Allowed(tool="bash", command="make", cwd="."), "session")
    assert (await talk.say("/approve"))[0] == "  1  session  bash: exactly `make`"
    assert await talk.say("/approve forget 1") == ["forgotten: exactly `make`"]
    assert talk.chat.policy.allowances.session == []


async def test_proposals_are_shown_confirmed_and_rejected(talk: Talk) -> None:
    """Bound to what was shown; the only one needs no name."""
    talk.host.open_proposals = [PROPOSAL]
    assert (await talk.say("/facts"))[:2] == ["prop_1 by run", "  + Turku"]
    assert (await talk.say("/confirm"))[-1] == "prop_1 is fact now"
    await talk.say("/reject prop_1 not so")
    assert talk.host.deeds == ["confirm prop_1 4", "reject prop_1 not so"]


async def test_of_several_proposals_one_must_be_named(talk: Talk) -> None:
    """Nothing is confirmed by mistake."""
    other = ProposalInfo(id="prop_2", workspace="ws", version=4, sha256="s", lines=["prop_2"])
    talk.host.open_proposals = [PROPOSAL, other]
    assert (await talk.say("/confirm"))[0] == "✗ which one? There are 2"
    assert talk.host.deeds == []


async def test_a_proposal_of_a_turn_is_pointed_at(talk: Talk) -> None:
    """Only a person makes it fact."""
    call = CallItem(call_id="c", name="facts.propose", side="server")
    talk.host.answer = [ToolFinished(index=0, call=call, result=text_result(call, "ok"))]
    assert "  /facts shows what is proposed, /confirm makes it fact" in await talk.say("hello")


async def test_runs_that_go_on_are_listed(talk: Talk) -> None:
    """Those that have ended are not."""
    talk.host.rows = [HostRunInfo(id="run_a", status="running", model="m"), HostRunInfo(id="run_b", status="completed")]
    assert (await talk.say("/ps"))[0] == "   run_a  running  m"


async def test_the_steps_of_a_run_are_shown(talk: Talk) -> None:
    """With their time, cleaned."""
    await talk.say("hello")
    talk.host.entries["run_1"] += [Entry(kind="tool_call", at=1.5, content="add(\x1b[2J)")]
    assert "    1.500 s  tool_call         add(␛[2J)" in await talk.say("/trace")


async def test_status_and_cost_say_what_is_known(talk: Talk) -> None:
    """Unknown is called unknown."""
    await talk.say("hello")
    assert "  policy   ask" in await talk.say("/status")
    assert any(line.startswith("  cost unknown; [[price]]") for line in await talk.say("/cost"))
    talk.host.price = 0.25
    await talk.say("hello")
    assert "  $0.2500; [[price]] in treadle.toml names what a model costs" in await talk.say("/cost")


async def test_a_command_of_the_person_is_shown_and_goes_to_the_model_only_when_asked(talk: Talk) -> None:
    """`!` runs it, `!!` adds it to the next message."""
    shown = await talk.say("!echo hi; exit 2")
    assert shown[0] == "  hi"
    assert shown[1].startswith("  exit 2; the model has not seen this")
    await talk.say("what now")
    await talk.say("!!")
    await talk.say("look")
    said = [str(ask.items[-1]) for ask in talk.host.asked]
    assert ["hi\\n" in each for each in said] == [False, True]


async def test_the_screen_is_drawn_again_and_cleared(tmp_path: Path) -> None:
    """And themes are taken."""
    talk = Talk(tmp_path, rich=True)
    await talk.say("/redraw", "/theme light")
    assert (talk.face.redrawn, talk.chat.screen.text_style.theme) == (1, "light")
    await talk.say("/clear")
    assert talk.face.deeds == ["clear"]


async def test_quit_leaves(talk: Talk) -> None:
    """Nothing after it is read."""
    talk.face.typed = ["/quit", "hello"]
    await talk.chat.run()
    assert talk.host.asked == []


def test_no_output_is_lost_to_a_name() -> None:
    """Every command has a summary of its own."""
    assert len({slash.summary for slash in COMMANDS.values()}) == len(COMMANDS)


async def test_a_command_that_takes_long_can_be_stopped(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer does not hold the terminal; a quick one is no turn."""
    monkeypatch.setattr(chat, "SLOW_S", 0.0)
    asked = asyncio.Event()

    async def never(limit: int, *, search: str = "") -> list[SessionInfo]:
        asked.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(talk.host, "list_sessions", never)
    running = asyncio.ensure_future(talk.say("/sessions"))
    await asyncio.wait_for(asked.wait(), 10)
    for _ in range(1000):
        if not talk.chat.is_running:
            await asyncio.sleep(0)
    assert talk.chat.activity_line() == "… waiting (Ctrl-C stops)"
    talk.chat.interrupt()
    assert await asyncio.wait_for(running, 10) == ["stopped"]
    assert not talk.chat.is_running


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")
async def test_a_diff_runs_nothing_that_the_repository_names(talk: Talk, tmp_path: Path) -> None:
    """A tool may have written the repository's settings; the command runs as the person, outside the sandbox."""

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    git("init")
    git("add", "a.txt")
    git("commit", "-m", "first")
    for name in ("core.fsmonitor", "filter.x.clean", "filter.x.process", "diff.x.textconv", "diff.external"):
        git("config", name, f"touch ran-{name.replace('.', '-')}; cat")
    git("config", "filter.x.required", "true")
    (tmp_path / ".gitattributes").write_text("*.txt filter=x diff=x\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text("two and more\n", encoding="utf-8")
    shown = await talk.say("/diff")
    assert "    +two and more" in shown
    assert [name for name in os.listdir(tmp_path) if name.startswith("ran-")] == []
