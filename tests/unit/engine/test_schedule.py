import pytest

from treadle.canon.tools import ToolPolicy
from treadle.engine.schedule import waves

READ = ToolPolicy(effect="read", parallel=True)
SHY = ToolPolicy(effect="read")
WRITE = ToolPolicy(effect="write", parallel=True)


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([], []),
        ([READ], [[0]]),
        ([SHY, SHY], [[0], [1]]),
        ([READ, READ, READ], [[0, 1, 2]]),
        ([READ, WRITE, READ, READ], [[0], [1], [2, 3]]),
        ([WRITE, WRITE], [[0], [1]]),
        ([READ, SHY, READ], [[0], [1], [2]]),
    ],
)
def test_only_readers_that_agree_run_side_by_side(policies, expected):
    """Order is kept, nothing shares a wave with a write, and sequential is the default."""
    assert waves(policies) == expected
