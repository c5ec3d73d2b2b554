"""The corpus of stray calls, scored by its own runner."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dialects import check
from treadle.protocols.text_calls import parse

CORPUS = Path(__file__).parent / "public.jsonl"
CASES: list[dict[str, Any]] = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
DIALECTS = sorted({case["dialect"] for case in CASES})


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_case_of_the_corpus_is_right_however_it_is_cut(dialect: str) -> None:
    """Whole, by single characters and at random, the runner finds nothing wrong."""
    wrong: dict[str, str] = {}
    for case in CASES:
        if case["dialect"] != dialect:
            continue
        for label, chunks in check.chunkings(case["text"], ["whole", "char", "rand"], [1, 2, 3]):
            why = check.judge(case, parse(case["text"], case["tools"], chunks))
            if why:
                wrong[f"{case['id']} {label}"] = why
    assert wrong == {}


def test_the_corpus_is_whole() -> None:
    """There are 635 cases in 54 dialects and in none."""
    assert (len(CASES), len(DIALECTS)) == (635, 55)


def test_the_runner_prints_635_of_635() -> None:
    """The runner itself, as a command, is content."""
    command = [
        sys.executable,
        check.__file__,
        str(CORPUS),
        "treadle.protocols.text_calls:parse",
        "--chunkings",
        "whole",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip().rpartition("\n")[2]) == (0, "635 of 635")


def test_ordinary_text_is_hardly_held_back() -> None:
    """By single characters no visible character of ordinary text waits for more than a marker's length."""
    waits: list[int] = []
    for case in CASES:
        if case["dialect"] == "none" and case["tools"]:
            waits += check.delays(parse(case["text"], case["tools"], list(case["text"]))["stream"])
    assert max(waits) <= 12
    assert sum(waits) / len(waits) < 0.5
