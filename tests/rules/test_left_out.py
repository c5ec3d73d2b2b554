"""A run of the tests says what it left out."""

from pathlib import Path

import pytest

from left_out import left_out

pytest_plugins = ("pytester",)


def test_each_reason_stands_once_with_its_tests_the_most_frequent_first():
    """Equal reasons are one line with the number of tests and the first files."""
    skipped = [(f"tests/a/test_{name}.py::test_x[{name}]", "Skipped: there is no tmux") for name in "abcde"]
    skipped += [("tests/a/test_a.py::test_y", "Skipped: there is no tmux"), ("tests/b/test_b.py::test_z", "too\nold")]
    assert list(left_out(skipped)) == [
        "left out: 7 tests, because",
        "  there is no tmux: 6 tests of tests/a/test_a.py, tests/a/test_b.py, tests/a/test_c.py, tests/a/test_d.py"
        " and 1 more files",
        "  too old: 1 test of tests/b/test_b.py",
    ]


def test_nothing_is_said_when_nothing_was_left_out():
    """A run that skipped nothing ends as before."""
    assert list(left_out([])) == []


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_ends_with_what_it_left_out(pytester: pytest.Pytester, workers: str):
    """The lines stand at the end of the output, in one process and with workers, also for a module left out whole."""
    pytester.makepyfile(
        test_some="import pytest\n@pytest.mark.skip(reason='no moon')\ndef test_a(): pass\ndef test_b(): pass\n",
        test_none="import pytest\npytest.skip('no sun', allow_module_level=True)\n",
    )
    (pytester.path / "conftest.py").write_text(Path(__file__).parents[1].joinpath("conftest.py").read_text())
    root = Path(__file__).parents[1]
    pytester.makeini(f"[pytest]\npythonpath = {root}\n")
    done = pytester.runpytest_subprocess("-q", "-n", workers)
    assert [line for line in done.outlines if "because" in line or line.startswith("  no ")] == [
        "left out: 2 tests, because",
        "  no moon: 1 test of test_some.py",
        "  no sun: 1 test of test_none.py",
    ]
