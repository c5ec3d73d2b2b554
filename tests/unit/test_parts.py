"""What a process is made of by default: here its ids."""

import os
import threading
from itertools import pairwise

from treadle.runtime import RandomIds


def test_ids_are_all_different_and_hold_their_prefix():
    """Also beyond those that are made at a time."""
    ids = RandomIds()
    made = [ids.new("run") for _ in range(1_000)]
    assert len(set(made)) == 1_000
    assert all(each.startswith("run_") and len(each) == 35 and int(each[4:], 16) >= 0 for each in made)


def test_ids_are_in_the_order_of_their_making():
    """So that what is written together stands together in the journal's indexes."""
    ids = RandomIds()
    made = [ids.new("run") for _ in range(1_000)]
    clock = [each[:15] for each in made]
    assert clock == sorted(clock)
    assert sum(before < after for before, after in pairwise(made)) > 900


def test_threads_do_not_get_the_same_ids():
    """Large bodies are read beside the loop."""
    ids, made = RandomIds(), list[str]()
    threads = [threading.Thread(target=lambda: made.extend([ids.new("x") for _ in range(500)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8 * 500


def test_a_child_process_does_not_give_out_the_ids_of_its_parent():
    """What was made ahead stays with whoever made it."""
    ids = RandomIds()
    ids.new("x")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, ids.new("x").encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    assert theirs
    assert theirs not in {ids.new("x") for _ in range(500)}
