"""What Treadle guarantees, one row for each: the sentence, what enforces it, the tests, and whether this machine can.

docs/security.md and `treadle doctor` are made from this table. A new guarantee is a new row, and nothing else.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec

import msgspec

from treadle.cli.checkup.found import Check
from treadle.cli.checkup.machine import OPENAT2, has_syscall

Holds = Callable[[], str]
"""Returns why this machine cannot enforce something; empty when it can."""


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that always holds, and what stands behind it."""

    name: str
    says: str
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


GUARANTEES: tuple[Guarantee, ...] = (
    Guarantee(
        name="commands.confined",
        says="A command that a model runs reads the system and its folders, writes its folders, and has no network.",
        by="Landlock (Linux 6.7, ABI 4) and seccomp: sandbox L2",
        tests=("tests/sandbox/test_hostile.py::test_a_hostile_action_gets_as_far_as_its_level_says_and_no_further",),
        holds=_level(2),
    ),
    Guarantee(
        name="commands.secrets",
        says="A command sees neither secrets in its folder nor other processes, and cannot change what is protected.",
        by="user, mount, process and network namespaces (Linux 5.13): sandbox L3",
        tests=("tests/sandbox/test_hostile.py::test_a_hostile_action_gets_as_far_as_its_level_says_and_no_further",),
        holds=_level(3),
    ),
    Guarantee(
        name="commands.end",
        says="A command ends with everything that it started: at its time limit, on cancel, and when Treadle ends.",
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
        says="A file tool never reads or writes outside of its root, whatever links are exchanged meanwhile.",
        by="openat2 with RESOLVE_BENEATH (Linux 5.6), else a walk that follows no link",
        tests=(
            "tests/sandbox/test_files.py::test_reading_never_leaves_the_root",
            "tests/sandbox/test_files.py::test_writing_never_leaves_the_root",
        ),
        holds=_openat2,
    ),
    Guarantee(
        name="web.addresses",
        says="The web tool connects only to addresses that were checked, for every redirect and every answer of DNS.",
        by="a guarded client that connects to the address it checked",
        tests=(
            "tests/unit/tools/web/test_client.py::test_a_name_that_changes_its_address_is_caught_at_every_step",
            "tests/unit/tools/web/test_client.py::test_a_redirect_inwards_is_refused",
            "tests/unit/tools/web/test_address.py::test_a_url_that_leads_inside_or_is_spelt_oddly_is_refused",
        ),
    ),
    Guarantee(
        name="schemas.bounded",
        says="The schema of an MCP server, guest or client never holds up other requests, and its check always ends.",
        by="patterns in linear time and a bound on work; all else in a process that is killed after 2 s",
        tests=(
            "tests/unit/tools/test_schema_worker.py::test_a_hostile_schema_does_not_hold_up_the_loop",
            "tests/hostile/test_bombs.py::test_the_schema_of_a_clients_tool_does_not_hold_up_others",
        ),
    ),
    Guarantee(
        name="json.bounded",
        says="A request body costs bounded time and memory at every route, and is refused in words.",
        by="bounds on bytes, depth, values and fields before anything is decoded",
        tests=("tests/hostile/test_bombs.py::test_every_route_refuses_a_bomb_soon_and_in_words",),
    ),
    Guarantee(
        name="http.bounded",
        says="Heads, trailers, bodies in flight and connections are bounded, and one message is never read as two.",
        by="the HTTP/1.1 edge",
        tests=(
            "tests/hostile/test_http11.py::test_bytes_are_answered_as_http_says",
            "tests/unit/server/edge/test_bounds.py::test_trailers_without_end_are_refused",
            "tests/unit/server/edge/test_bounds.py::test_a_trailer_is_no_header",
        ),
    ),
    Guarantee(
        name="browser.origin",
        says="A page of another site can neither ask nor change anything here.",
        by="checks of Host, Origin, Sec-Fetch-Site and Content-Type",
        tests=(
            "tests/unit/server/test_guard.py::test_any_other_host_is_refused",
            "tests/unit/server/test_guard.py::test_another_origin_is_refused",
        ),
    ),
    Guarantee(
        name="keys.apart",
        says="What belongs to another key is answered exactly like what is not there.",
        by="the owner of every row, checked on each route",
        tests=("tests/unit/server/clients/test_tenancy.py::test_what_another_key_has_is_as_if_it_were_not",),
    ),
    Guarantee(
        name="approvals.bound",
        says="A decision is about the arguments that were shown, and stands once.",
        by="the digest of the arguments, and one transaction",
        tests=(
            "tests/gateway/approvals/test_waiting.py::test_of_two_deciders_one_wins_and_the_other_is_told",
            "tests/gateway/approvals/test_waiting.py::test_after_untrusted_output_a_write_needs_approval",
        ),
    ),
    Guarantee(
        name="facts.people",
        says="No model, client tool, MCP server or guest can make something fact, under any name.",
        by="the tool does not exist for them",
        tests=(
            "tests/gateway/test_facts_commit.py::test_no_spelling_of_a_clients_tool_gets_through",
            "tests/gateway/test_facts_commit.py::test_an_mcp_server_cannot_bring_it_along",
        ),
    ),
    Guarantee(
        name="mcp.review",
        says="A tool of an MCP server that changes, or appears after the first listing, is out until a person accepts.",
        by="digests of what was agreed to, beside the journal",
        tests=(
            "tests/peers/test_servers.py::test_a_changed_tool_is_out_until_somebody_accepts_it",
            "tests/peers/test_servers.py::test_a_tool_that_comes_later_is_out_until_somebody_accepts_it",
        ),
        holds=_module("mcp", "mcp"),
    ),
    Guarantee(
        name="config.trust",
        says="A treadle.toml that was found loads and starts only what a person agreed to, byte for byte.",
        by="digests of the file and of the files that it loads or starts",
        tests=(
            "tests/unit/config/trust/test_bound.py::test_each_file_that_changes_is_asked_about_by_name",
            "tests/unit/config/trust/test_bound.py::test_a_file_that_comes_later_is_asked_about",
        ),
    ),
    Guarantee(
        name="guests.bounded",
        says="A WASM guest has bounded time, memory and host calls, and no authority but its grants.",
        by="wasmtime with fuel and limits",
        tests=("tests/guests/test_hostile.py::test_in_a_process_every_hostile_guest_gets_its_answer",),
        holds=_module("wasmtime", "wasm"),
    ),
    Guarantee(
        name="journal.audit",
        says="`treadle audit verify` finds one changed bit in what a run was and did, and calls nothing else wrong.",
        by="a chain of SHA-256, sealed with the installation's secret",
        tests=(
            "tests/store/test_audit.py::test_one_changed_bit_is_found_wherever_it_is",
            "tests/store/test_audit.py::test_what_treadle_did_itself_is_never_called_wrong",
        ),
    ),
    Guarantee(
        name="terminal.clean",
        says="No text of a model, tool, MCP server or journal is obeyed by the terminal that shows it.",
        by="visible symbols instead of control characters",
        tests=(
            "tests/unit/cli/terminal/test_clean.py::test_json_for_a_terminal_means_the_same",
            "tests/unit/cli/journal/test_export.py::test_a_terminal_gets_nothing_that_it_would_obey",
        ),
    ),
)
NOT_GUARANTEED: tuple[str, ...] = (
    "That a model is not misled by what it reads: only what comes of it is bounded.",
    "Anything about Python tools, MCP servers that the operator starts, and programs outside of the sandbox: they run "
    "with the rights of Treadle. Trust covers their files as far as they are named or imported, not what they load.",
    "That a person who approves, accepts or trusts has read what was shown.",
    "Confidentiality of the journal against those who can read the disk, and of requests against their provider.",
    "Commands where the sandbox is below L2: see the levels in docs/sandbox.md.",
    "Availability under a flood beyond the bounds of rates, connections and bytes in flight.",
)


def check_guarantees() -> Check:
    """Say which guarantees this machine can enforce, and why it cannot enforce the others."""
    lacking = {each: reason for each in GUARANTEES if (reason := each.holds())}
    held = [each.name for each in GUARANTEES if each not in lacking]
    lines = [f"{len(held)} of {len(GUARANTEES)} can be enforced here: {', '.join(held)}"]
    lines += [f"not {each.name}: {reason}. {each.says}" for each, reason in lacking.items()]
    return Check(
        name="guarantees",
        state="note" if lacking else "ok",
        detail="\n".join(lines),
        advice="docs/security.md lists what each says and needs" if lacking else "",
    )
