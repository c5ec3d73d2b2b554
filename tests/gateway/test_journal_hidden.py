"""The journal may lie in the folder that local tools work in: they do not open it."""

from pathlib import Path

import pytest

from treadle.canon.items import ResultItem
from treadle.config import LocalSection, Settings, StoreSection, ToolsSection
from treadle.config.settings import ServerSection
from treadle.runtime import Runtime


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("file_read", {"path": "runs.db"}),
        ("file_read", {"path": "runs.db-wal"}),
        ("file_read", {"path": "link"}),
    ],
)
async def test_a_file_tool_does_not_read_everybody_s_runs(tmp_path: Path, tool: str, arguments: dict[str, str]) -> None:
    """Neither the database, nor its log, nor a link to it."""
    (tmp_path / "link").symlink_to("runs.db")
    settings = Settings(
        store=StoreSection(url=f"sqlite:///{tmp_path / 'runs.db'}"),
        server=ServerSection(mcp=True),
        tools=ToolsSection(local=LocalSection(root=str(tmp_path), enabled=("file_read", "grep"))),
    )
    async with Runtime(settings) as runtime:
        result = await runtime.call(tool, arguments, lambda said: None)
        found = await runtime.call("grep", {"pattern": "SQLite format"}, lambda said: None)
    assert isinstance(result, ResultItem)
    assert result.is_error
    assert "may hold secrets" in repr(result)
    assert "runs.db" not in repr(found.output)
