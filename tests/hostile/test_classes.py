"""Every class of bad input against a running server: the right refusal or the right answer, and the server lives on."""

import time

import pytest

from guests.hostile import CASES
from hostile.rows import LIVE, classes, covered, table
from hostile.table import APIS, VENDORS, Row, Scene, send
from rules.test_requirements import existing
from sandbox.actions import ACTIONS

GUESTS = {
    "wasm.endless_loop": "an endless loop",
    "wasm.memory_grow_to_max": "memory.grow until there is no more",
    "wasm.pointer_out_of_bounds": "a message past the end",
    "wasm.negative_length": "a message of a negative length",
    "wasm.length_overflow": "a message wrapping around",
    "wasm.index_not_a_function": "a tool in an empty slot",
    "wasm.wrong_signature": "a tool of another signature",
    "wasm.reentrant_host_call": "a tool that sends",
    "wasm.use_after_close": "a send after close",
    "wasm.output_never_fits": "a tool that wants more room for ever",
}
"""One test plays all hostile guests, so its name alone would not show that a class is among them."""

SECONDS_MAX = 25.0
"""For one row, on a machine that does much else; a server that hangs takes longer."""


@pytest.mark.parametrize("row", LIVE, ids=[row.id for row in LIVE])
def test_a_class_of_bad_input_gets_what_its_row_says(request: pytest.FixtureRequest, row: Row) -> None:
    """Refused, accepted or repaired as told; afterwards the process is well, and neither memory nor time ran away."""
    scene: Scene = request.getfixturevalue("locked" if row.needs_keys else "scene")
    assert row.tries is not None
    scene.house.forget_peak()
    before, began = scene.house.memory_bytes(), time.monotonic()
    row.tries(scene)
    took = time.monotonic() - began
    grown = scene.house.memory_bytes(peak=True) - before
    assert scene.house.is_well() == ""
    assert took < SECONDS_MAX
    assert grown < row.peak_bytes_max, f"{grown / 1e6:.0f} MB"


def test_a_call_that_is_meant_leaves_its_trace(scene: Scene) -> None:
    """The tool by which rows see that nothing ran does run when it is called as it should be."""
    before = scene.effects()
    for api in VENDORS:
        assert send(scene, api, APIS[api].body(model="good-pay"), "good-pay").status == 200
    assert scene.effects() == [*before, *["paid 7"] * len(VENDORS)]


def test_every_class_has_one_row() -> None:
    """The list of classes and the table agree, and both count 173."""
    listed, rows = classes(), table()
    assert [row.id for row in rows] == listed
    assert len(set(listed)) == len(listed) == 173


def test_every_row_is_tried_here_or_names_its_tests() -> None:
    """No row without a real attempt, and none without a reason."""
    assert [row.id for row in table() if bool(row.tries) == bool(row.tests) or not row.why] == []


def test_every_class_of_guest_is_among_the_hostile_guests() -> None:
    """By the name that it has there; the same for the actions of the sandbox."""
    assert set(GUESTS) == {name for name in classes() if name.startswith("wasm.")}
    assert set(GUESTS.values()) <= {case.name for case in CASES}
    assert "read_through_a_hard_link" in ACTIONS


def test_the_tests_that_rows_name_are_collected(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test that was renamed or removed leaves its class untried, and that is found here. Prints the count.

    One case of a test is looked for among those of this run, when that is the whole suite, else only its test.
    """
    config = request.config
    is_whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    here = {item.nodeid for item in request.session.items} if is_whole else set[str]()
    files = {name.partition("::")[0] for name in here}

    def is_there(test: str) -> bool:
        plain = test.partition("[")[0]
        return test in here or (plain in existing() and (test == plain or test.partition("::")[0] not in files))

    assert sorted({test for row in covered() for test in row.tests if not is_there(test)}) == []
    untried = {row.id for row in covered() if not row.tests}
    with capsys.disabled():
        print(f"\nclasses of bad input with a test: {len(table()) - len(untried)}/{len(classes())}")
    assert not untried
