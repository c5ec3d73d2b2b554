"""Plays shared among processes: each gets every n-th of the tasks, and the answers come back in the order of the tasks.

What crosses the border is JSON, so that nothing is passed on that could not also be stored.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def shared(work: Callable[[Sequence[T]], list[bytes]], tasks: Sequence[T], jobs: int) -> list[bytes]:
    """Let so many processes do the work; it must answer each task, in order. `work` is a function of a module."""
    jobs = max(1, min(jobs, len(tasks)))
    if jobs == 1:
        return work(tasks)
    answers: list[bytes] = [b""] * len(tasks)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_die_quietly) as pool:
        for start, share in enumerate(list(pool.map(work, [tasks[start::jobs] for start in range(jobs)]))):
            answers[start::jobs] = share
    return answers


def _die_quietly() -> None:
    """End at an interruption without a word: the process that was asked says what there is to say."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
