"""What was said and not read yet: in order, shown while it waits, and taken back when its turn is stopped."""

from treadle.terminal.editor.send_queue import InputQueue


async def test_what_was_said_is_read_in_order() -> None:
    """What waits for a turn is listed until it is read; leaving comes last."""
    box = InputQueue()
    box.send("first")
    box.send("second", waits=True)
    box.leave()
    assert (box.queued, box.is_empty) == (["second"], False)
    assert [await box.read() for _ in range(3)] == ["first", "second", None]
    assert (box.queued, box.is_empty) == ([], True)


async def test_what_nobody_has_read_is_taken_back_as_one_text() -> None:
    """Nothing of it is sent later; with something to take back, nobody leaves."""
    box = InputQueue()
    box.send("first", waits=True)
    box.send("second", waits=True)
    box.leave()
    assert box.take_back() == "first\nsecond"
    assert (box.queued, box.is_empty) == ([], True)
    assert box.take_back() == ""
    assert box.is_empty


async def test_who_only_wants_to_leave_leaves() -> None:
    """Taking back nothing does not keep anybody."""
    box = InputQueue()
    box.leave()
    assert box.take_back() == ""
    assert await box.read() is None
