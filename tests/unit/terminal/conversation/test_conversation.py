"""A conversation: the thread from turn to turn, its session, and going back."""

import asyncio

import pytest

from treadle.core.errors import ConfigError, Conflict, NotFound
from treadle.core.events import RunEnded, RunEvent, RunStarted, ToolFinished
from treadle.core.items import CallItem, text_message, text_result
from treadle.terminal.conversation.conversation import Conversation, name_of
from treadle.terminal.conversation.host_interface import CallQuestion, HostRunInfo, SessionInfo
from unit.terminal.conversation.fake import FakeHost


async def send(conversation: Conversation, text: str) -> list[RunEvent]:
    """Run one turn to its end."""
    return [event async for event in conversation.send(text_message("user", text))]


async def test_turns_of_a_conversation_share_a_session_named_after_the_first_words() -> None:
    """Only what is new is sent; the host keeps the rest."""
    host = FakeHost()
    conversation = Conversation(host, "m", folder="/here")
    await send(conversation, "what is\nthe weather?")
    await send(conversation, "and now?")
    assert [(ask.session_id, len(ask.items)) for ask in host.asked] == [("sess_1", 1), ("sess_1", 1)]
    assert (host.known["sess_1"].name, host.known["sess_1"].folder) == ("what is the weather?", "/here")


async def test_a_name_that_is_taken_is_counted() -> None:
    """Two conversations may begin alike."""
    host = FakeHost()
    await send(Conversation(host, "m"), "hello")
    await send(Conversation(host, "m"), "hello")
    assert [session.name for session in host.known.values()] == ["hello", "hello (2)"]


async def test_names_are_tried_a_bounded_number_of_times() -> None:
    """A host that refuses every name is no reason to try for ever."""

    class Full(FakeHost):
        async def create_session(self, name: str, folder: str) -> SessionInfo:
            """Refuse."""
            raise Conflict("taken")

    with pytest.raises(Conflict, match="100 sessions named 'hello'"):
        await send(Conversation(Full(), "m"), "hello")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "conversation"),
        ("  a \n b ", "a b"),
        ("word " * 30, "word word word word word word word word word word word…"),
    ],
)
def test_a_name_is_one_short_line(text: str, name: str) -> None:
    """Long prompts are cut between words."""
    assert name_of(text) == name


async def test_where_nothing_is_kept_everything_is_sent_again() -> None:
    """Call, result and answer in order, without a session."""
    host = FakeHost(is_persistent=False)
    call = CallItem(call_id="c", name="add", side="server")
    host.answer = [ToolFinished(index=0, call=call, result=text_result(call, "1"))]
    conversation = Conversation(host, "m")
    await send(conversation, "one")
    await send(conversation, "two")
    assert host.asked[1].session_id is None
    assert host.asked[1].items == (text_message("user", "one"), text_result(call, "1"), text_message("user", "two"))
    assert host.known == {}


async def test_forgetting_begins_anew() -> None:
    """After /new there is another session."""
    host = FakeHost()
    conversation = Conversation(host, "m")
    await send(conversation, "one")
    conversation.forget()
    await send(conversation, "two")
    assert [ask.session_id for ask in host.asked] == ["sess_1", "sess_2"]


async def test_a_summary_goes_before_the_next_message_once() -> None:
    """A new conversation can know of an old one."""
    host = FakeHost()
    conversation = Conversation(host, "m")
    conversation.begin_with("summary")
    await send(conversation, "go on")
    await send(conversation, "more")
    assert [len(ask.items) for ask in host.asked] == [2, 1]
    assert host.asked[0].items[0] == text_message("user", "summary")


async def test_a_cancelled_turn_ends_as_cancelled() -> None:
    """The host is asked to end the run, and the events say so."""
    host = FakeHost()
    host.holds.clear()
    conversation = Conversation(host, "m")
    seen: list[RunEvent] = []
    async for event in conversation.send(text_message("user", "one")):
        seen.append(event)
        if isinstance(event, RunStarted):
            conversation.cancel()
    assert isinstance(seen[-1], RunEnded)
    assert seen[-1].status == "cancelled"
    assert not conversation.is_running


async def test_a_cancel_before_the_run_exists_is_not_lost() -> None:
    """Ctrl-C while the run is being made durable cancels it as soon as it is there."""

    class Slow(FakeHost):
        async def start(self, ask: CallQuestion) -> str:
            """Be cancelled meanwhile."""
            self.holds.clear()
            conversation.cancel()
            return await super().start(ask)

    host = Slow()
    conversation = Conversation(host, "m")
    ended = (await send(conversation, "one"))[-1]
    assert isinstance(ended, RunEnded)
    assert ended.status == "cancelled"


async def test_a_turn_that_can_not_start_is_over() -> None:
    """The next one can begin."""
    conversation = Conversation(FakeHost(), "m")
    with pytest.raises(NotFound):
        await send(conversation, "fail")
    assert not conversation.is_running


async def test_the_last_conversation_of_the_folder_is_resumed() -> None:
    """Others are left alone; a folder without one says so."""
    host = FakeHost()
    await send(Conversation(host, "m", folder="/there"), "elsewhere")
    await send(Conversation(host, "m", folder="/here"), "here")
    conversation = Conversation(host, "m", folder="/here")
    entries = await conversation.resume_last()
    assert conversation.session is not None
    assert conversation.session.name == "here"
    assert [entry.content for entry in entries] == ["elsewhere", "here"]
    with pytest.raises(NotFound, match="no conversation of this folder"):
        await Conversation(host, "m", folder="/nowhere").resume_last()


async def test_news_are_runs_that_somebody_else_began() -> None:
    """Neither what was said here nor what was there when it was resumed is news."""
    host = FakeHost()
    conversation = Conversation(host, "m")
    assert await conversation.news() is None
    await send(conversation, "one")
    assert await conversation.news() is None
    host.rows.insert(0, HostRunInfo(id="run_other", status="running", session_id="sess_1"))
    news = await conversation.news()
    assert news is not None
    assert news.id == "run_other"
    again = Conversation(host, "m")
    await again.resume("one")
    assert (await again.news()) == news, "a run that goes on is shown by whoever resumes"


async def test_a_name_that_nothing_has_leaves_the_conversation_as_it_is() -> None:
    """A slip of the finger must not lose it: what is said next goes on from what was said."""
    host = FakeHost()
    conversation = Conversation(host, "m")
    await send(conversation, "one")
    with pytest.raises(NotFound):
        await conversation.resume("gone")
    await send(conversation, "two")
    assert [ask.session_id for ask in host.asked] == ["sess_1", "sess_1"]


async def test_stepping_back_forks_before_the_turn_and_returns_what_was_said() -> None:
    """The first conversation stays; before the first turn there is nothing to fork."""
    host = FakeHost()
    conversation = Conversation(host, "m")
    await send(conversation, "one")
    await send(conversation, "two")
    assert await conversation.step_back() == "two"
    assert conversation.session is not None
    assert (conversation.session.name, conversation.session.head_run_id) == ("one (fork)", "run_1")
    assert await conversation.step_back() == "one"
    assert conversation.session is None
    with pytest.raises(NotFound, match="nothing was said yet"):
        await conversation.step_back()


async def test_the_model_of_a_server_is_learnt_from_its_first_run() -> None:
    """A server has a default of its own; this process must be told which model."""
    conversation = Conversation(FakeHost(place="http://x"), "")
    await send(conversation, "hi")
    assert conversation.model == "theirs"
    with pytest.raises(ConfigError, match="which model"):
        Conversation(FakeHost(), "")


async def test_a_cancel_that_nobody_hears_is_no_error() -> None:
    """The run has ended meanwhile."""

    class Gone(FakeHost):
        async def cancel(self, run_id: str) -> None:
            """Fail."""
            self.holds.set()
            raise NotFound("gone")

    host = Gone()
    host.holds.clear()
    conversation = Conversation(host, "m")
    async for event in conversation.send(text_message("user", "one")):
        if isinstance(event, RunStarted):
            conversation.cancel()
    await asyncio.sleep(0)
    assert not conversation.is_running
