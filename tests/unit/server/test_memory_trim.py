"""Memory goes back to the system when the process has grown well beyond its smallest size, and only then."""

import logging

import pytest

from treadle.server.memory_trim import SLACK_BYTES, MemoryTrimmer, find_trim, resident_bytes

MEBIBYTE = 1_048_576


class Heap:
    """A process whose size the test sets; a trim leaves it with what is really in use."""

    def __init__(self) -> None:
        self.held = self.in_use = 100 * MEBIBYTE
        self.trims = 0

    def trim(self) -> None:
        self.trims += 1
        self.held = self.in_use


@pytest.fixture
def heap() -> Heap:
    """A process that holds 100 MiB."""
    return Heap()


async def test_a_process_that_has_grown_is_trimmed(heap: Heap, caplog: pytest.LogCaptureFixture) -> None:
    """Once the burst is over there is nothing more to do."""
    caplog.set_level(logging.DEBUG)
    trimmer = MemoryTrimmer(heap.trim, lambda: heap.held)
    heap.held += SLACK_BYTES
    assert not await trimmer.trim_if_grown()
    heap.held += 1
    assert await trimmer.trim_if_grown()
    assert not await trimmer.trim_if_grown()
    assert (heap.trims, heap.held) == (1, 100 * MEBIBYTE)
    assert [record.message for record in caplog.records] == ["memory given back"]


async def test_what_is_still_in_use_is_looked_at_again(heap: Heap) -> None:
    """Memory that was in use at the first look is given back at a later one."""
    trimmer = MemoryTrimmer(heap.trim, lambda: heap.held)
    heap.held = heap.in_use = 900 * MEBIBYTE
    assert await trimmer.trim_if_grown()
    assert heap.held == 900 * MEBIBYTE
    heap.in_use = 100 * MEBIBYTE
    assert await trimmer.trim_if_grown()
    assert heap.held == 100 * MEBIBYTE
    assert not await trimmer.trim_if_grown()


async def test_a_process_that_shrank_is_compared_with_its_smallest_size(heap: Heap) -> None:
    """What it held when it started may have been more than it needs."""
    trimmer = MemoryTrimmer(heap.trim, lambda: heap.held)
    heap.held = heap.in_use = 20 * MEBIBYTE
    assert not await trimmer.trim_if_grown()
    heap.held = 20 * MEBIBYTE + SLACK_BYTES + 1
    assert await trimmer.trim_if_grown()
    assert heap.held == 20 * MEBIBYTE


async def test_cycles_are_collected_once_when_little_goes_on(heap: Heap) -> None:
    """Under load a collection would stop everything, and where it has freed nothing it is not repeated."""
    collections = list[int]()

    def collect() -> None:
        collections.append(heap.held)
        heap.in_use = min(heap.in_use, 150 * MEBIBYTE)

    trimmer = MemoryTrimmer(heap.trim, lambda: heap.held, collect)
    for grown in (300, 400, 200):
        heap.held = heap.in_use = grown * MEBIBYTE
        assert await trimmer.trim_if_grown()
    assert collections == []
    for _ in range(3):
        assert await trimmer.trim_if_grown()
    assert (collections, heap.held) == ([200 * MEBIBYTE], 150 * MEBIBYTE)


def test_this_system_can_trim() -> None:
    """Where the C library is glibc; elsewhere nothing is done."""
    trim = find_trim()
    if trim is None:
        pytest.skip("the C library of this system has no malloc_trim")
    trim()
    assert resident_bytes() > MEBIBYTE
