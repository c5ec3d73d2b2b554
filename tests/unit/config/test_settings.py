"""The structs: the defaults that the design fixes, and the terminal's own limits."""

from pathlib import Path

import pytest

from treadle.config import (
    LimitsSection,
    LocalSection,
    ServerSection,
    Settings,
    TerminalSection,
    ToolsSection,
    Upstream,
    for_terminal,
    sqlite_path,
)


def test_the_gateway_has_the_limits_of_the_design() -> None:
    """The numbers of the limits table, gateway column."""
    assert Settings().limits == LimitsSection(
        max_iterations=8,
        max_total_tool_calls=32,
        max_tool_output_bytes=64 * 1024,
        tool_timeout_s=10.0,
        identical_repeats_max=3,
        arguments_bytes_max=256 * 1024,
        wall_s=600.0,
        idle_s=120.0,
        stored_bytes_max=1024 * 1024,
        tools_max=128,
        tools_bytes_max=200_000,
    )


def test_the_terminal_has_limits_of_its_own() -> None:
    """The numbers of the limits table, terminal column, in the places where a run looks for them."""
    settings = for_terminal(Settings())
    assert settings.limits == LimitsSection(
        max_iterations=50,
        max_total_tool_calls=200,
        max_tool_output_bytes=32 * 1024,
        arguments_bytes_max=1024 * 1024,
        stored_bytes_max=1_048_576,
        wall_s=0.0,
    )
    reading, changing = ("glob", "file_read", "grep", "outline", "output_read"), ("file_write", "file_edit", "bash")
    assert settings.tools.local.enabled == (*reading, *changing)
    assert settings.tools.local.allow_unconfined, "a person is asked about every command that nothing confines"


def test_bash_that_nobody_is_asked_about_is_never_unconfined_by_default() -> None:
    """Trust takes the question away, so the sandbox must be there."""
    trusting = Settings(tools=ToolsSection(local=LocalSection(policy="trust")))
    assert not for_terminal(trusting).tools.local.allow_unconfined
    assert not for_terminal(Settings(terminal=TerminalSection(policy="trust"))).tools.local.allow_unconfined


def test_local_tools_that_are_named_stay_as_named_in_the_terminal() -> None:
    """What a person configured is not widened."""
    settings = Settings(tools=ToolsSection(local=LocalSection(enabled=("glob",))))
    assert for_terminal(settings).tools.local.enabled == ("glob",)


def test_the_gateway_offers_no_local_tools_unless_told() -> None:
    """Files of the server's machine are not a client's business."""
    assert Settings().tools.local == LocalSection(enabled=(), root=".")


@pytest.mark.parametrize(
    ("settings", "offered"),
    [
        (Settings(), True),
        (for_terminal(Settings()), True),
        (Settings(tools=ToolsSection(load=("mine.py",))), False),
        (Settings(tools=ToolsSection(demo=False)), False),
        (Settings(tools=ToolsSection(enabled=False)), False),
        (Settings(upstream=(Upstream(name="a", base_url="http://127.0.0.1/v1"),)), False),
    ],
)
def test_demo_tools_are_for_the_demo_only(settings: Settings, offered: bool) -> None:
    """What they say is invented: a real model, or a person with tools of their own, never gets them."""
    assert settings.offers_demo_tools is offered


def test_the_server_listens_on_loopback() -> None:
    """A fresh gateway is reachable from this machine only, at the documented port, with the documented bounds."""
    assert Settings().server == ServerSection(
        host="127.0.0.1", port=8700, allow_remote=False, body_bytes_max=32 * 1024 * 1024, keep_alive_s=10.0
    )


def test_the_terminal_names_of_s3_are_kept() -> None:
    """max_tool_turns and max_output_size are spelled and sized as the terminal design has them."""
    assert (TerminalSection().max_tool_turns, TerminalSection().max_output_size) == (50, 1048576)


def test_settings_can_not_be_changed() -> None:
    """A process has one set of settings for its life."""
    with pytest.raises(AttributeError):
        Settings().server.port = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///data.db", "data.db"), ("sqlite:////var/t.db", "/var/t.db"), ("sqlite:///a b/ü.db", "a b/ü.db")],
)
def test_a_store_url_names_a_file(url: str, path: str) -> None:
    """Three slashes are relative, four absolute."""
    assert sqlite_path(url) == Path(path)
