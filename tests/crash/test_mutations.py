"""Treadle broken on purpose: the crash suite must notice each, or it would prove nothing."""

from pathlib import Path

import pytest

from chaos.server import prepare, servers
from chaos.stores import rows
from crash.foreign import Foreign
from crash.parent import Worker, program, quick_folder
from crash.test_foreign import Load
from postgres import postgres_server

OPENS_THE_FILE = """
from treadle.journal.sqlite import connection
make = connection._create
def create(path):
    make(path)
    with open(path, "rb"):
        pass
connection._create = create
"""
"""As it was: every connection opened and closed the file, by which the locks of the process went."""
SERVES = """
import sys
from treadle.cli.main import main
sys.exit(main())
"""
BROKEN: dict[str, tuple[str, str, str, str]] = {
    "the numbers of a recovered run do not leap": (
        "from treadle.core import events; events.NUMBER_STEP = 0",
        "sqlite",
        "tools",
        "a client that went on after a crash",
    ),
    "every process goes by its own clock": (
        "from treadle.runtime.database_clock import SharedClock; SharedClock.now = lambda self: self._own.now()",
        "postgresql",
        "mixed",
        "it began at",
    ),
}
"""What is broken, on which store and in which scene that shows, and what is said then."""
AHEAD = "before tell"
"""Where clients have seen more than the journal has."""


@pytest.mark.slow
def test_a_server_that_opens_the_file_of_its_journal_is_caught(tmp_path: Path) -> None:
    """With the locks gone a reader takes the log away: the server writes to a file without a name, and it is lost."""
    prepare(tmp_path, 0.0)
    store = f"sqlite:///{tmp_path}/treadle.db"
    with servers(tmp_path, store, 1, program=OPENS_THE_FILE + SERVES) as [server]:
        server.expects_deleted = True
        foreign, load = Foreign(tmp_path / "treadle.db"), Load(server)
        with load.going_on():
            for _ in range(3):
                foreign.run("Python reads")
        server.kill_all()
    kept = {row.response_id: row.status for row in rows(store)}
    assert load.refused or [each for each in load.answered if kept.get(each) != "completed"]


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_a_run_that_is_recovered_wrongly_is_caught(name: str, tmp_path: Path) -> None:
    """Some place to die at shows it, and the checker says how."""
    change, store, scene, words = BROKEN[name]
    address = postgres_server().url("{name}") if store == "postgresql" else ""
    with quick_folder(tmp_path) as folder, program(change) as process:
        crash = Worker(process, folder, address)
        points = [number for number, place in enumerate(crash.places(scene), 1) if AHEAD in place]
        found = [problem for point in points for each in crash.die(scene, [point]) for problem in each.problems]
        assert [problem for problem in found if words in problem] != []
