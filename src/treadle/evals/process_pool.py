"""Distributes plays over processes: each gets every n-th task, and the answers are returned in the order of the tasks.

Tasks and answers cross the process boundary as JSON.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
Tell = Callable[[int, int], None]
"""Hears how many tasks are done, and of how many."""

PARTS_EACH = 4
"""Into how many pieces the part of each process is cut, so that it can be told how far all are."""
TASKS_AT_ONCE = 8


def shared(
    work: Callable[[Sequence[T]], list[bytes]], tasks: Sequence[T], jobs: int, tell: Tell | None = None
) -> list[bytes]:
    """Let so many processes do the work; it must answer each task, in order. `work` is a function of a module.

    `tell` hears how many tasks are done, and of how many.
    """
    tell = tell or (lambda _done, _total: None)
    jobs = max(1, min(jobs, len(tasks)))
    if jobs == 1:
        return _alone(work, tasks, tell)
    answers: list[bytes] = [b""] * len(tasks)
    parts = min(len(tasks), jobs * PARTS_EACH)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_die_quietly) as pool:
        under_way = {pool.submit(work, tasks[start::parts]): start for start in range(parts)}
        done = 0
        for future in as_completed(under_way):
            share = future.result()
            answers[under_way[future] :: parts] = share
            done += len(share)
            tell(done, len(tasks))
    return answers


def _alone(work: Callable[[Sequence[T]], list[bytes]], tasks: Sequence[T], tell: Tell) -> list[bytes]:
    """Do the work in this process, a few tasks at a time, so that something can be told."""
    answers: list[bytes] = []
    for start in range(0, len(tasks), TASKS_AT_ONCE):
        answers += work(tasks[start : start + TASKS_AT_ONCE])
        tell(len(answers), len(tasks))
    return answers


def _die_quietly() -> None:
    """End at an interruption without a word: the process that was asked says what there is to say."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
