"""The security guarantees, one row for each: the statement, what enforces it, its tests, and whether this machine can.

docs/security.md and `treadle doctor` are made from this table. A new guarantee is a new row, and nothing else.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec

import msgspec

from treadle.cli.doctor.check_result import Check
from treadle.cli.doctor.machine_checks import OPENAT2, has_syscall

Holds = Callable[[], str]
"""Returns why this machine cannot enforce something; empty when it can."""


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """One guarantee: its statement, what enforces it, and its tests."""

    name: str
    text: str
    by: str
    tests: tuple[str, ...]
    holds: Holds = lambda: ""


def _level(wanted: int) -> Holds:
    def holds() -> str:
        from treadle.tools.sandbox import find_level

        found = find_level()
        return "" if found.level >= wanted else found.missing.get(f"L{wanted}", f"the sandbox is {found.name}")

    return holds


def _module(name: str, extra: str) -> Holds:
    return lambda: "" if find_spec(name) else f"needs pip install 'treadle[{extra}]'"


def _not_windows() -> str:
    return "" if sys.platform != "win32" else "there is no fork and no signal for it on Windows"


def _openat2() -> str:
    return "" if has_syscall(OPENAT2) else "the kernel has no openat2: paths are walked without following links"


def _read_only() -> str:
    from treadle.tools.sandbox import can_read_only, describe_read_only, find_level

    found = find_level()
    return "" if can_read_only(found) else describe_read_only(found)


def _network() -> str:
    from treadle.tools.sandbox import find_level, network_gap

    found = find_level()
    return network_gap(found.level, found.abi) or ""


def _hiding() -> str:
    from treadle.tools.sandbox import hiding_gaps

    return "; ".join(hiding_gaps())


GUARANTEES: tuple[Guarantee, ...] = (
    Guarantee(
        name="commands.confined",
        text="A command that a model runs reads the system and its folders, writes its folders, and has no network.",
        by="Landlock (Linux 6.7, ABI 4) and seccomp: sandbox L2",
        tests=("tests/sandbox/test_hostile.py::test_a_hostile_action_gets_as_far_as_its_level_says_and_no_further",),
        holds=_level(2),
    ),
    Guarantee(
        name="commands.secrets",
        text="A command sees neither secrets in its folder nor other processes.",
        by="user, mount, process and network namespaces (Linux 5.13): sandbox L3",
        tests=("tests/sandbox/test_hostile.py::test_a_hostile_action_gets_as_far_as_its_level_says_and_no_further",),
        holds=_level(3),
    ),
    Guarantee(
        name="commands.unasked",
        text="A command that nobody is asked about changes nothing and has no network, in whichever process it runs.",
        by="read-only mounts (L3), or Landlock (Linux 5.13) and seccomp (L1, L2)",
        tests=(
            "tests/sandbox/test_reading.py::test_every_bypass_that_was_found_changes_nothing",
            "tests/sandbox/test_reading.py::test_random_lines_change_nothing",
            "tests/gateway/approvals/test_restart.py::"
            "test_a_command_that_was_classed_read_only_runs_so_in_whichever_process_it_runs",
        ),
        holds=_read_only,
    ),
    Guarantee(
        name="commands.git",
        text="A command leaves nothing behind that makes git run a program; a git write changes no settings or hooks.",
        by="bind mounts (Linux 5.12) at L3, and a look at the folder after the command from L1 on",
        tests=(
            "tests/sandbox/test_protected_paths.py::test_git_runs_nothing_that_a_command_left",
            "tests/sandbox/test_protected_paths.py::test_a_git_write_leaves_nothing_that_git_runs",
            "tests/sandbox/test_protected_paths.py::test_what_puts_things_back_is_not_ended_by_the_command",
        ),
        holds=_level(1),
    ),
    Guarantee(
        name="paths.protected",
        text="A protected path is written only when a person allows it by name; no rule or mode answers instead.",
        by="one table of paths, and a reason of the engine that nothing overrides",
        tests=(
            "tests/unit/tools/local/test_file_write.py::test_what_may_not_be_written_is_refused",
            "tests/unit/engine/test_approval_reasons.py::test_what_a_person_must_allow_by_name_is_named",
            "tests/gateway/approvals/test_protected.py::test_a_person_is_asked_once_about_a_protected_path",
        ),
    ),
    Guarantee(
        name="git.own",
        text="The git that Treadle itself starts runs nothing that a repository names.",
        by="one function that turns off what settings would run",
        tests=(
            "tests/unit/tools/test_git_command.py::test_nothing_that_a_repository_names_is_run",
            "tests/rules/test_git.py::test_git_is_started_in_one_place",
        ),
    ),
    Guarantee(
        name="people.decide",
        text="A request without a person's login or a key decides nothing, on loopback neither.",
        by="a rule for every route, made of a table of what decides nothing",
        tests=(
            "tests/unit/server/auth/test_person.py::"
            "test_a_change_without_a_credential_is_refused_unless_it_only_asks_or_proposes",
            "tests/unit/server/auth/test_person.py::test_a_model_cannot_confirm_its_own_proposal",
        ),
    ),
    Guarantee(
        name="commands.ports",
        text="A command with a network does not reach Treadle, its PostgreSQL, Redis and Temporal, or a Unix socket.",
        by="Landlock (Linux 6.7, ABI 4) for TCP ports; seccomp refuses what Landlock does not see",
        tests=(
            "tests/sandbox/test_network.py::test_a_command_with_a_network_does_not_reach_treadle",
            "tests/sandbox/test_network.py::test_ports_that_open_later_are_closed_to_the_next_command",
        ),
        holds=_network,
    ),
    Guarantee(
        name="commands.journal",
        text="A command sees neither the journal nor its secret.",
        by="masks at L3; at L1 and L2 a journal inside a folder of commands is an error at start",
        tests=(
            "tests/sandbox/test_network.py::test_treadles_own_files_read_as_empty_in_whatever_folder_they_lie",
            "tests/sandbox/test_network.py::test_where_nothing_can_be_hidden_the_journal_lies_elsewhere",
        ),
        holds=_level(1),
    ),
    Guarantee(
        name="mcp.hidden",
        text="An untrusted MCP server on stdio sees neither files nor processes of Treadle, and reaches no port of it.",
        by="user and mount namespaces, Landlock, seccomp",
        tests=("tests/peers/test_hiding.py::test_a_server_finds_treadle_only_where_it_is_trusted",),
        holds=_hiding,
    ),
    Guarantee(
        name="web.own_ports",
        text="`http_get` does not reach Treadle's ports at any address of this machine.",
        by="a check of the address that is connected to",
        tests=(
            "tests/peers/test_own_listeners.py::test_treadle_is_not_asked_under_any_spelling",
            "tests/peers/test_own_listeners.py::test_a_name_that_is_bound_again_does_not_lead_to_treadle",
        ),
    ),
    Guarantee(
        name="guests.grants",
        text="A WASM guest has no sockets, and no folder with Treadle's files.",
        by="WebAssembly, and a check of grants at start",
        tests=("tests/unit/runtime/test_port_settings.py::test_a_guest_is_granted_no_folder_of_treadles_own",),
    ),
    Guarantee(
        name="commands.end",
        text="A command ends with everything that it started: at its time limit, on cancel, and when Treadle ends.",
        by="a supervising process, subreaper and signals",
        tests=(
            "tests/sandbox/test_hostile.py::test_nothing_outlives_its_command",
            "tests/sandbox/test_hostile.py::test_a_cancelled_command_is_gone",
            "tests/sandbox/test_hostile.py::test_a_command_that_kills_its_supervisor_is_ended_all_the_same",
        ),
        holds=_not_windows,
    ),
    Guarantee(
        name="files.root",
        text="A file tool never reads or writes outside of its root, whatever links are exchanged meanwhile.",
        by="openat2 with RESOLVE_BENEATH (Linux 5.6), else a walk that follows no link",
        tests=(
            "tests/sandbox/test_files.py::test_reading_never_leaves_the_root",
            "tests/sandbox/test_files.py::test_writing_never_leaves_the_root",
        ),
        holds=_openat2,
    ),
    Guarantee(
        name="web.addresses",
        text="The web tool connects only to addresses that were checked, for every redirect and every answer of DNS.",
        by="a guarded client that connects to the address it checked",
        tests=(
            "tests/unit/tools/web/test_guarded_client.py::test_a_name_that_changes_its_address_is_caught_at_every_step",
            "tests/unit/tools/web/test_guarded_client.py::test_a_redirect_inwards_is_refused",
            "tests/unit/tools/web/test_ssrf_guard.py::test_a_url_that_leads_inside_or_is_spelt_oddly_is_refused",
        ),
    ),
    Guarantee(
        name="schemas.bounded",
        text="The schema of an MCP server, guest or client never holds up other requests, and its check always ends.",
        by="patterns in linear time and a bound on work; all else in a process that is killed after 2 s",
        tests=(
            "tests/unit/tools/test_schema_worker.py::test_a_hostile_schema_does_not_hold_up_the_loop",
            "tests/hostile/test_bombs.py::test_the_schema_of_a_clients_tool_does_not_hold_up_others",
            "tests/peers/test_gateway.py::test_a_schema_made_to_block_holds_up_nobody",
        ),
    ),
    Guarantee(
        name="json.bounded",
        text="A request body costs bounded time and memory at every route, and is refused in words.",
        by="bounds on bytes, depth, values and fields before anything is decoded",
        tests=("tests/hostile/test_bombs.py::test_every_route_refuses_a_bomb_soon_and_in_words",),
    ),
    Guarantee(
        name="http.bounded",
        text="Heads, trailers, bodies in flight and connections are bounded, and one message is never read as two.",
        by="the HTTP/1.1 edge",
        tests=(
            "tests/hostile/test_http11.py::test_bytes_are_answered_as_http_says",
            "tests/unit/http/test_bounds.py::test_trailers_without_end_are_refused",
            "tests/unit/http/test_bounds.py::test_a_trailer_is_no_header",
        ),
    ),
    Guarantee(
        name="browser.origin",
        text="A page of another site can neither ask nor change anything here.",
        by="checks of Host, Origin, Sec-Fetch-Site and Content-Type",
        tests=(
            "tests/unit/server/test_request_guard.py::test_any_other_host_is_refused",
            "tests/unit/server/test_request_guard.py::test_another_origin_is_refused",
        ),
    ),
    Guarantee(
        name="keys.apart",
        text="What belongs to another key is answered exactly like what is not there.",
        by="the owner of every row, checked on each route",
        tests=("tests/unit/server/auth/test_tenancy.py::test_what_another_key_has_is_as_if_it_were_not",),
    ),
    Guarantee(
        name="approvals.bound",
        text="A decision is about the arguments that were shown, and stands once.",
        by="the digest of the arguments, and one transaction",
        tests=(
            "tests/gateway/approvals/test_waiting.py::test_of_two_deciders_one_wins_and_the_other_is_told",
            "tests/gateway/approvals/test_waiting.py::test_after_untrusted_output_a_write_needs_approval",
        ),
    ),
    Guarantee(
        name="approvals.level",
        text="A command that a person or a rule of theirs allowed runs at no lower level than it was asked at.",
        by="the level in the decision, compared where the command runs",
        tests=(
            "tests/gateway/approvals/test_protected.py::test_a_command_runs_at_no_lower_level_than_it_was_asked_at",
            "tests/unit/runs/approvals/test_remembered_rules.py::test_a_rule_for_a_command_holds_at_no_lower_level",
        ),
    ),
    Guarantee(
        name="facts.people",
        text="No model, client tool, MCP server or guest can make something fact, under any name.",
        by="the tool does not exist for them",
        tests=(
            "tests/gateway/test_facts_commit.py::test_no_spelling_of_a_clients_tool_gets_through",
            "tests/gateway/test_facts_commit.py::test_an_mcp_server_cannot_bring_it_along",
        ),
    ),
    Guarantee(
        name="mcp.review",
        text="A tool of an MCP server that changes, or appears after the first listing, is out until a person accepts.",
        by="digests of what was agreed to, beside the journal",
        tests=(
            "tests/peers/test_servers.py::test_a_changed_tool_is_out_until_somebody_accepts_it",
            "tests/peers/test_servers.py::test_a_tool_that_comes_later_is_out_until_somebody_accepts_it",
        ),
        holds=_module("mcp", "mcp"),
    ),
    Guarantee(
        name="config.trust",
        text="A treadle.toml that was found loads and starts only what a person agreed to, byte for byte.",
        by="digests of the file and of the files that it loads or starts",
        tests=(
            "tests/unit/config/test_trusted_content.py::test_each_file_that_changes_is_asked_about_by_name",
            "tests/unit/config/test_trusted_content.py::test_a_file_that_comes_later_is_asked_about",
        ),
    ),
    Guarantee(
        name="guests.bounded",
        text="A WASM guest has bounded time, memory and host calls, and no authority but its grants.",
        by="wasmtime with fuel and limits",
        tests=("tests/guests/test_hostile.py::test_in_a_process_every_hostile_guest_gets_its_answer",),
        holds=_module("wasmtime", "wasm"),
    ),
    Guarantee(
        name="journal.audit",
        text="`treadle audit verify` finds one changed bit in what a run was and did, and calls nothing else wrong.",
        by="a chain of SHA-256, sealed with the installation's secret",
        tests=(
            "tests/store/test_audit.py::test_one_changed_bit_is_found_wherever_it_is",
            "tests/store/test_audit.py::test_what_treadle_did_itself_is_never_called_wrong",
        ),
    ),
    Guarantee(
        name="terminal.clean",
        text="No text of a model, tool, MCP server or journal is obeyed by the terminal that shows it.",
        by="visible symbols instead of control characters",
        tests=(
            "tests/unit/terminal/rendering/test_sanitize.py::test_json_for_a_terminal_means_the_same",
            "tests/unit/cli/commands/test_export_command.py::test_a_terminal_gets_nothing_that_it_would_obey",
        ),
    ),
)
NOT_GUARANTEED: tuple[str, ...] = (
    "That a model is not misled by what it reads: only what comes of it is bounded.",
    "Anything about Python tools, MCP servers that the operator starts, and programs outside of the sandbox: they run "
    "with the rights of Treadle. Trust covers their files as far as they are named or imported, not what they load.",
    "That a person who approves, accepts or trusts has read what was shown.",
    "Confidentiality of the journal against those who can read the disk, and of requests against their provider.",
    "Commands where the sandbox is below L3: see what a level does not stop in docs/sandbox.md.",
    "That a repository which a command makes in a folder below is gone before the command ends.",
    "A second name (hard link) that a secret or a protected file has had from before: under that name it is an "
    "ordinary file, which tools read and commands write.",
    "Files that run by being run (`Makefile`, scripts, tests): a tool that may write them decides what they do.",
    "The Python of tools, programs of MCP servers and guests that lie in the workspace: who writes them decides what "
    "they do when Treadle loads them next, with `treadle serve --reload` at once. Keep them elsewhere, or protected.",
    "That an MCP server has no other program act for it: a service manager, a container engine, ssh to this machine.",
    "Availability under a flood beyond the bounds of rates, connections and bytes in flight.",
)


def check_guarantees() -> Check:
    """List the guarantees that this machine can enforce, and why it cannot enforce the others."""
    lacking = {each: reason for each in GUARANTEES if (reason := each.holds())}
    held = [each.name for each in GUARANTEES if each not in lacking]
    lines = [f"{len(held)} of {len(GUARANTEES)} can be enforced here: {', '.join(held)}"]
    lines += [f"not {each.name}: {reason}. {each.text}" for each, reason in lacking.items()]
    return Check(
        name="guarantees",
        state="note" if lacking else "ok",
        detail="\n".join(lines),
        advice="docs/security.md lists what each says and needs" if lacking else "",
    )
