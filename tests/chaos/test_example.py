"""The example of replicas with its kill: a run outlives the process it began in."""

from pathlib import Path

from examples.stage import Stage
from postgres import postgres_server


def test_a_run_is_ended_by_another_replica_than_it_began_at(tmp_path: Path) -> None:
    """The process is killed in the middle of a tool; after its lease the other one ends the run, with an answer."""
    stage = Stage("replicas", tmp_path)
    printed = stage.run("replicas.py", "--kill", TREADLE_STORE__URL=postgres_server().url()).splitlines()
    assert printed[-1].startswith("crash: the other ended the run completed, ")
    assert "written in 5 s" in printed[-1]
