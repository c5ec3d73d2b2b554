"""`treadle serve`: that it does not ask itself, and what its log looks like on a terminal."""

import logging

import pytest

from treadle.cli.commands.serve_command import StartupLines, check_addresses, tell_reload
from treadle.config import Mcp, ServerSection, Settings, Upstream
from treadle.core.errors import ConfigError
from treadle.telemetry import Redactor


@pytest.mark.parametrize(
    ("base_url", "is_self"),
    [
        ("http://127.0.0.1:8700/v1", True),
        ("http://localhost:8700", True),
        ("http://127.0.0.1:8701/v1", False),
        ("https://api.example.org:8700/v1", False),
    ],
)
def test_a_gateway_is_not_its_own_upstream(base_url: str, is_self: bool) -> None:
    """A variable meant for clients in the shell that starts it would make every request go round in a circle."""
    settings = Settings(server=ServerSection(port=8700), upstream=(Upstream(name="openai", base_url=base_url),))
    if not is_self:
        check_addresses(settings)
        return
    with pytest.raises(ConfigError, match="upstream 'openai' is this gateway itself"):
        check_addresses(settings)


def test_a_gateway_is_not_its_own_mcp_server() -> None:
    """Its tools would come back under longer and longer names."""
    own = Mcp(name="me", url="http://localhost:8700/mcp")
    with pytest.raises(ConfigError, match="MCP server 'me' is this gateway itself"):
        check_addresses(Settings(server=ServerSection(port=8700), mcp=(own,)))
    check_addresses(Settings(server=ServerSection(port=8701), mcp=(own,)))


def test_a_reload_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """What was loaded, or why it was not and what goes on."""
    with caplog.at_level(logging.INFO, "treadle.tools"):
        tell_reload("tools.py", ["one", "two"])
        tell_reload("tools.py", ConfigError("line 3: invalid syntax"))
    assert caplog.messages == [
        "tools reloaded from tools.py: one, two",
        "tools not reloaded, the old ones stay: line 3: invalid syntax",
    ]


def line(message: str, **fields: object) -> str:
    """Return one record as a person sees it, without the time."""
    record = logging.makeLogRecord({"msg": message, "levelname": "WARNING", **fields})
    return StartupLines(Redactor(["sk-secret-value"])).format(record).split(" ", 1)[1]


def test_a_line_names_its_run() -> None:
    """Two runs at once can be told apart, and found in the journal."""
    assert line("run failed: x", run_id="run_1") == "WARNING run failed: x [run_1]"
    assert line("listening") == "WARNING listening"


def test_a_line_holds_neither_a_key_nor_a_control_character() -> None:
    """What an upstream says is foreign text."""
    assert line("said \x1b[2J sk-secret-value") == "WARNING said ␛[2J [redacted]"
