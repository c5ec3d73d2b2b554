"""The settings as structs: every key with its type, bounds, default and description.

The descriptions are what `treadle config example` and the documents print. This module reads nothing:
`Settings()` is a gateway on the demo model, whatever the machine.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from treadle.config.access_settings import ApiRate, KeysSection, RatesSection
from treadle.config.local_tool_settings import LocalSection as LocalSection
from treadle.config.runner_settings import RunnerSection
from treadle.config.telemetry_settings import TelemetrySection
from treadle.journal.store_url import PASSWORD_ENV
from treadle.protocols.protocol_registry import CHAT, ProtocolName

SQLITE = "sqlite:///"
CASSETTE = "cassette:"
DEMO_MODEL = "demo"
OnDisconnect = Literal["cancel", "continue"]
Isolation = Literal["thread", "process"]
Tier = Literal["native", "marked", "markerless"]
TIERS: tuple[Tier, ...] = ("native", "marked", "markerless")


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of treadle.toml."""


class ServerSection(Section, frozen=True, kw_only=True):
    """The HTTP server of `treadle serve`."""

    host: Annotated[str, Meta(min_length=1, description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="port to listen on; 0 picks a free one")] = 8700
    allow_remote: Annotated[bool, Meta(description="allow a host that other machines can reach")] = False
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="more names accepted in the Host header, such as gateway.example.org")
    ] = ()
    workers: Annotated[
        int, Meta(ge=1, le=256, description="processes that serve the port together; they share the journal")
    ] = 1
    body_bytes_max: Annotated[int, Meta(ge=1024, description="largest request body, in bytes")] = 33_554_432
    bodies_bytes_max: Annotated[
        int, Meta(ge=1024, description="bytes of request bodies that the process holds at once; more get 503")
    ] = 268_435_456
    connections_max: Annotated[
        int, Meta(ge=0, description="connections of clients at once; 0 is three quarters of the open files allowed")
    ] = 0
    receive_timeout_s: Annotated[
        float, Meta(gt=0, description="how long the head of a request may take to arrive, and then its body")
    ] = 60.0
    send_timeout_s: Annotated[
        float, Meta(gt=0, description="how long a client may take nothing of its answer before it is cut off")
    ] = 60.0
    keep_alive_s: Annotated[float, Meta(gt=0, description="a silent stream says something this often")] = 10.0
    on_disconnect: Annotated[
        OnDisconnect, Meta(description="what becomes of a run when its client goes away; one in the background goes on")
    ] = "cancel"
    reconnect_s: Annotated[
        float, Meta(ge=0, description="how long a run with an Idempotency-Key waits for its client to come back")
    ] = 60.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="how much to log on stderr")
    ] = "info"
    mcp: Annotated[bool, Meta(description="serve the tools to MCP clients at /mcp")] = False
    evals: Annotated[str, Meta(description="folder with the runs of `treadle eval` that the console shows")] = (
        "eval-runs"
    )
    login: Annotated[
        Literal["auto", "always", "never"],
        Meta(
            description='who opens the pages logs in by a link; "auto": where other machines can reach them. Deciding '
            "needs a login or a key always"
        ),
    ] = "auto"


class StoreSection(Section, frozen=True, kw_only=True):
    """Where runs and sessions are kept."""

    url: Annotated[
        str,
        Meta(
            description="sqlite:///FILE or postgresql://USER@HOST/DATABASE; "
            "empty is treadle/treadle.db in the user's data directory"
        ),
    ] = ""
    password_env: Annotated[
        str, Meta(min_length=1, description="the variable that holds the password of PostgreSQL")
    ] = PASSWORD_ENV
    persistence: Annotated[Literal["on", "off"], Meta(description='"off" keeps a run only while it lasts')] = "on"
    keep_days: Annotated[
        float, Meta(ge=0, description="days after which a conversation that nobody went on with is forgotten; 0: never")
    ] = 0.0


class LimitsSection(Section, frozen=True, kw_only=True):
    """Bounds on every run of the gateway. They are absolute."""

    max_iterations: Annotated[int, Meta(ge=1, description="rounds (model calls) of one run")] = 8
    max_total_tool_calls: Annotated[int, Meta(ge=0, description="tool calls of one run")] = 32
    max_tool_output_bytes: Annotated[int, Meta(ge=256, description="what the model reads of one result")] = 65_536
    tool_timeout_s: Annotated[float, Meta(gt=0, description="time for one tool that names none itself")] = 10.0
    identical_repeats_max: Annotated[int, Meta(ge=1, description="the same call with the same arguments")] = 3
    arguments_bytes_max: Annotated[int, Meta(ge=1, description="arguments of one call")] = 262_144
    wall_s: Annotated[float, Meta(ge=0, description="time for one run; 0 is without end")] = 600.0
    idle_s: Annotated[float, Meta(gt=0, description="silence of an upstream before it counts as gone")] = 120.0
    stored_bytes_max: Annotated[int, Meta(ge=256, description="what is kept of one result")] = 1_048_576
    tools_max: Annotated[int, Meta(ge=1, description="tools offered to a model at once")] = 128
    tools_bytes_max: Annotated[int, Meta(ge=1024, description="their descriptions and schemas together")] = 200_000


class TerminalSection(Section, frozen=True, kw_only=True):
    """`treadle chat` and `treadle run`: their own, wider limits, and what the screen shows."""

    max_tool_turns: Annotated[int, Meta(ge=1, description="rounds (model calls) of one turn")] = 50
    max_tool_calls: Annotated[int, Meta(ge=0, description="tool calls of one turn")] = 200
    max_output_size: Annotated[int, Meta(ge=256, description="bytes kept and shown of one result")] = 1_048_576
    max_tool_output_bytes: Annotated[int, Meta(ge=256, description="what the model reads of one result")] = 32_768
    arguments_bytes_max: Annotated[int, Meta(ge=1, description="arguments of one call")] = 1_048_576
    wall_s: Annotated[float, Meta(ge=0, description="time for one turn; 0 is without end")] = 0.0
    policy: Annotated[
        Literal["plan", "ask", "auto-edit", "trust"],
        Meta(description='what runs unasked: nothing that changes ("plan"), reading only, edits too, or everything'),
    ] = "ask"
    fold: Annotated[
        Literal["off", "on"], Meta(description='"on" shows preview_lines of a result, "off" fold_lines of it')
    ] = "off"
    preview_lines: Annotated[int, Meta(ge=1, description="lines of a result shown before it is folded")] = 20
    fold_lines: Annotated[int, Meta(ge=1, description="lines of a result shown at a time, also by Ctrl-O")] = 200
    plain: Annotated[bool, Meta(description="plain lines and numbered choices, for screen readers")] = False
    animations: Annotated[bool, Meta(description="show text while its block is still open")] = True
    theme: Annotated[Literal["dark", "light", "contrast", "none"], Meta(description="colours")] = "dark"
    local: Annotated[tuple[str, ...], Meta(description="local tools offered when tools.local.enabled names none")] = (
        "glob",
        "file_read",
        "grep",
        "outline",
        "output_read",
        "file_write",
        "file_edit",
        "bash",
    )


class WebSection(Section, frozen=True, kw_only=True):
    """The tool `http_get`: pages of the public web, and never an address inside your network."""

    enabled: Annotated[bool, Meta(description="offer it")] = False
    hosts: Annotated[
        tuple[str, ...], Meta(description='the only hosts it may ask, such as ["*.example.org"]; none is all')
    ] = ()
    ports: Annotated[tuple[int, ...], Meta(description="the ports it may ask")] = (80, 443)
    networks: Annotated[
        tuple[str, ...], Meta(description='private networks it may ask all the same, such as ["10.1.0.0/16"]')
    ] = ()
    bytes_max: Annotated[int, Meta(ge=1024, description="what is read of one answer")] = 1_048_576
    timeout_s: Annotated[float, Meta(gt=0, description="time for one answer, redirects included")] = 20.0


class ToolRule(Section, frozen=True, kw_only=True):
    """How tools may run whose name or source fits. Several are several tables; of those that fit, later ones win."""

    match: Annotated[
        tuple[str, ...], Meta(min_length=1, description='patterns of names and sources: ["get_*", "mcp:*", "local"]')
    ]
    enabled: Annotated[bool | None, Meta(description="false takes them away")] = None
    effect: Annotated[
        Literal["read", "idempotent", "write", "destructive"] | None, Meta(description="what they do")
    ] = None
    approval: Annotated[
        Literal["never", "always", "by_effect"] | None, Meta(description="whether a person must agree before one runs")
    ] = None
    timeout_s: Annotated[float | None, Meta(description="time for one call, its retries included")] = None
    retries: Annotated[
        int | None, Meta(description="how often a failed call is tried again, unless it has effects")
    ] = None
    output_bytes_max: Annotated[int | None, Meta(description="what the model reads of one result")] = None
    rate_per_min: Annotated[int | None, Meta(description="calls of one key in a minute; 0 is without bound")] = None
    parallel: Annotated[bool | None, Meta(description="whether calls that only read may run side by side")] = None
    resources: Annotated[
        tuple[str, ...] | None, Meta(description='what a call works on: ["file:{path}"]; ["*"] lets it run alone')
    ] = None
    exec: Annotated[bool | None, Meta(description="whether they run programs")] = None
    egress: Annotated[bool | None, Meta(description="whether they can carry something away")] = None
    untrusted: Annotated[bool | None, Meta(description="whether anybody may have written what they give")] = None
    name: Annotated[str, Meta(description="what it is called where it is the reason of something")] = ""


class TightRule(ToolRule, frozen=True, kw_only=True):
    """As `[[tools.rule]]`, but it can only tighten. The rules of a repository's own treadle.toml are read as these."""


class EffectSection(Section, frozen=True, kw_only=True):
    """What tools of one effect get where they say nothing themselves."""

    approval: Annotated[
        Literal["never", "always", "by_effect"],
        Meta(description="whether a person must agree before one runs; by_effect asks for destructive ones"),
    ] = "by_effect"
    timeout_s: Annotated[float, Meta(ge=0, description="time for one call; 0 is limits.tool_timeout_s")] = 0.0
    retries: Annotated[int, Meta(ge=0, description="how often a failed call is tried again, unless it has effects")] = 0
    output_bytes_max: Annotated[
        int, Meta(ge=0, description="what the model reads of one result; 0 is limits.max_tool_output_bytes")
    ] = 0
    rate_per_min: Annotated[int, Meta(ge=0, description="calls of one key in a minute; 0 is without bound")] = 0


class PolicySection(Section, frozen=True, kw_only=True):
    """How tools may run. `[[tools.rule]]` says it of single ones."""

    taint: Annotated[
        Literal["ask", "off"],
        Meta(description="what calls with effects need once output that anybody may have written was read"),
    ] = "ask"
    read: EffectSection = EffectSection()
    idempotent: EffectSection = EffectSection()
    write: EffectSection = EffectSection()
    destructive: EffectSection = EffectSection()


class ToolsSection(Section, frozen=True, kw_only=True):
    """Server tools: what Treadle itself runs."""

    enabled: Annotated[bool, Meta(description="false (or ENABLE_TOOLS=false) turns every server tool off")] = True
    load: Annotated[
        tuple[str, ...], Meta(description='files and modules with @tool functions: ["tools.py", "my_package.tools"]')
    ] = ()
    demo: Annotated[
        bool, Meta(description="offer the demo tools while there is no upstream and no tool of your own")
    ] = True
    strict_unknown_tool: Annotated[
        bool, Meta(description="fail a run that calls a tool nobody offers, instead of telling the model")
    ] = False
    collision: Annotated[
        Literal["server", "client", "error"], Meta(description="who runs a tool that both sides have")
    ] = "server"
    tool_status: Annotated[
        Literal["off", "text"], Meta(description='"text" tells Chat clients "Calling name…" as content')
    ] = "off"
    local: LocalSection = LocalSection()
    web: WebSection = WebSection()
    rule: tuple[ToolRule, ...] = ()
    tighten: tuple[TightRule, ...] = ()


class RepairSection(Section, frozen=True, kw_only=True):
    """Calls that models write as text: which are made calls again, and what those may do."""

    tiers: Annotated[
        tuple[Tier, ...],
        Meta(description="dialects looked for: the model's own, any other with a marker, those without (markerless)"),
    ] = ("native", "marked")
    dialects: Annotated[
        tuple[str, ...],
        Meta(description='more of them by name, see `treadle dialects`; "-name" leaves one out'),
    ] = ()
    effects: Annotated[
        Literal["ask", "allow", "deny"], Meta(description="what such a call of a server tool with effects needs")
    ] = "ask"
    held_chars_max: Annotated[
        int, Meta(ge=1024, description="what is held of one such call; longer text stays text")
    ] = 4_194_304


class ApprovalsSection(Section, frozen=True, kw_only=True):
    """How people are asked before a call runs that needs their approval."""

    enabled: Annotated[
        bool, Meta(description="ask people; false denies every such call unless a remembered rule agrees to it")
    ] = True
    wait_s: Annotated[float, Meta(ge=0, description="time to decide while a client holds its connection")] = 300.0
    stored_s: Annotated[float, Meta(ge=0, description="time to decide where none does: Responses, background runs")] = (
        3600.0
    )
    responses: Annotated[
        Literal["item", "wait"],
        Meta(description='"item" ends a response with mcp_approval_request items, "wait" keeps its stream open'),
    ] = "item"
    project: Annotated[
        str, Meta(max_length=1000, description="what rules without a session hold for; empty is the working folder")
    ] = ""


class WorkspaceSection(Section, frozen=True, kw_only=True):
    """What is worked on beside the chat: facts that only people commit, a draft, locks, and what is shown."""

    enabled: Annotated[bool, Meta(description="offer models tools to read it, patch it and propose facts")] = False
    default: Annotated[
        str, Meta(max_length=200, description="the workspace of runs that have none of their own; made when needed")
    ] = ""
    wait_s: Annotated[
        float, Meta(ge=0, description="how long facts.propose waits for a person; 0 lets the run go on at once")
    ] = 0.0
    expires_s: Annotated[float, Meta(ge=0, description="time to decide a proposal; 0 is without end")] = 604_800.0
    read_bytes_max: Annotated[int, Meta(ge=1024, description="what state.get shows at once")] = 16_384


class CacheSection(Section, frozen=True, kw_only=True):
    """Answers given again: a model call that is exactly like an earlier one of the same key need not be made."""

    enabled: Annotated[
        bool, Meta(description="answer equal model calls from the journal, where no tool offered has an effect")
    ] = False
    ttl_s: Annotated[float, Meta(gt=0, description="how old an answer may be that is given again")] = 86_400.0
    bytes_max: Annotated[int, Meta(ge=1, description="how large one may be; a larger one is asked for anew")] = (
        1_048_576
    )


class Upstream(Section, frozen=True, kw_only=True):
    """One endpoint with models. Several are several `[[upstream]]` tables."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="its name here")]
    base_url: Annotated[
        str, Meta(description="http(s)://host/v1, without the endpoint's own path; cassette:PATH plays a recording")
    ]
    protocol: Annotated[ProtocolName, Meta(description="the API it speaks")] = CHAT
    key_env: Annotated[str | None, Meta(description="the environment variable that holds its key")] = None
    models: Annotated[
        tuple[str, ...], Meta(description='model names it serves; one "*" in a name stands for any part of it')
    ] = ()
    headers: Annotated[dict[str, str], Meta(description="more headers to send; never a key")] = {}
    takes: Annotated[
        tuple[Literal["image", "file"], ...], Meta(description="what its models take beside text; the chat offers that")
    ] = ("image", "file")
    quirks: Annotated[
        tuple[str, ...], Meta(description="ways in which it differs, beside those its host is known for")
    ] = ()
    repair: Annotated[
        tuple[str, ...] | None,
        Meta(description="tiers and names of dialects looked for in its answers; as repair.tiers and repair.dialects"),
    ] = None
    connect_s: Annotated[float, Meta(gt=0, description="time to connect")] = 10.0
    idle_s: Annotated[float | None, Meta(description="silence before it counts as gone; as limits.idle_s")] = None
    streams_max: Annotated[int, Meta(ge=0, description="calls under way at once; others wait; 0 is no bound")] = 0
    cassette_speed: Annotated[
        float, Meta(ge=0, description="how fast a cassette plays: 0 at once, 1 with the pauses as recorded")
    ] = 0.0


class Route(Section, frozen=True, kw_only=True):
    """Which upstream answers for a model name. The first `[[route]]` that matches wins."""

    model: Annotated[str, Meta(min_length=1, description='a model name; one "*" stands for any part of it')]
    upstream: Annotated[str, Meta(min_length=1, description="the name of an upstream")]
    rename: Annotated[str | None, Meta(description="the name that the upstream knows the model by")] = None
    repair: Annotated[
        tuple[str, ...] | None,
        Meta(description="tiers and names of dialects looked for in these models' answers; as the upstream's"),
    ] = None
    on_disconnect: Annotated[
        OnDisconnect | None, Meta(description="what becomes of its runs when a client leaves; as server.on_disconnect")
    ] = None
    tools: Annotated[
        tuple[str, ...] | None,
        Meta(description='server tools that these models are offered, by name or source: ["get_*", "mcp:files"]'),
    ] = None
    fallback: Annotated[
        tuple[str, ...],
        Meta(description='who is asked when it does not answer, in order: "UPSTREAM" or "UPSTREAM/MODEL"'),
    ] = ()


class Price(Section, frozen=True, kw_only=True):
    """What tokens of a model cost. Several are several `[[price]]` tables; the first that matches holds."""

    model: Annotated[str, Meta(min_length=1, description='a model name; one "*" stands for any part of it')]
    input: Annotated[float, Meta(ge=0, description="US dollars for a million tokens of input")]
    output: Annotated[float, Meta(ge=0, description="US dollars for a million tokens of output")]
    cached: Annotated[float | None, Meta(description="for input that was read from a cache; as input")] = None
    cache_write: Annotated[float | None, Meta(description="for input that was written to a cache; as input")] = None


class UpstreamsSection(Section, frozen=True, kw_only=True):
    """How upstreams are protected, each for itself. Nothing is repeated once an answer has begun."""

    retries: Annotated[int, Meta(ge=0, le=10, description="how often a refused call is made again")] = 2
    backoff_s: Annotated[float, Meta(ge=0, description="pause before the first repeat, at most; doubled each time")] = (
        0.5
    )
    retry_after_s_max: Annotated[
        float, Meta(ge=0, description="a provider that asks for a longer pause is not asked again")
    ] = 60.0
    retry_share: Annotated[float, Meta(ge=0, le=1, description="how many of all calls may be repeated ones")] = 0.1
    breaker_share: Annotated[
        float, Meta(gt=0, le=1, description="share of failed calls that makes Treadle leave an upstream alone")
    ] = 0.5
    breaker_calls: Annotated[int, Meta(ge=1, description="calls before that share counts")] = 10
    breaker_window_s: Annotated[float, Meta(gt=0, description="how far back calls are counted")] = 30.0
    breaker_open_s: Annotated[
        float, Meta(gt=0, description="how long it is left alone, doubled while it does not recover, at most 12 times")
    ] = 10.0
    queue_s: Annotated[float, Meta(gt=0, description="how long a call waits for a place where streams_max is set")] = (
        10.0
    )
    answer_bytes_max: Annotated[
        int,
        Meta(ge=65_536, le=1_073_741_824, description="one answer of a model: texts, thoughts and arguments together"),
    ] = 16_777_216
    arguments_bytes_max: Annotated[
        int,
        Meta(
            ge=1024,
            le=1_073_741_824,
            description="arguments of one call in it; Treadle's tools take limits.arguments_bytes_max",
        ),
    ] = 4_194_304
    connections_max: Annotated[int, Meta(ge=1, description="connections to all of them together, one a call")] = 4_096
    env_proxies: Annotated[
        bool, Meta(description="ask through the proxies of HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, except NO_PROXY")
    ] = False


class GuestsSection(Section, frozen=True, kw_only=True):
    """Limits of WASM guests, each for itself."""

    cpu_s: Annotated[float, Meta(gt=0, description="CPU of a session guest; waiting for a model is not counted")] = 10.0
    wall_s: Annotated[float, Meta(gt=0, description="time of a session guest, with all its waiting")] = 300.0
    tool_cpu_s: Annotated[float, Meta(gt=0, description="CPU of one call of a tool guest")] = 5.0
    tool_wall_s: Annotated[float, Meta(gt=0, description="time of one call of a tool guest")] = 30.0
    memory_bytes_max: Annotated[int, Meta(ge=65_536, le=4_294_967_296, description="memory of a guest, in bytes")] = (
        67_108_864
    )
    host_calls_max: Annotated[int, Meta(ge=1, description="host calls of a guest")] = 100_000
    log_bytes_max: Annotated[int, Meta(ge=0, description="what a guest may log and print in all")] = 262_144
    module_bytes_max: Annotated[int, Meta(ge=8, description="size of a module; components may have 64 MiB")] = 8_388_608
    live_max: Annotated[int, Meta(ge=1, description="guests alive at once; one more is refused")] = 256
    engine: Annotated[
        Literal["safe", "fast"], Meta(description='"fast" checks memory by signals: a fifth quicker, less robust')
    ] = "safe"
    isolation: Annotated[
        Isolation, Meta(description='"process" runs guests that name none in processes of their own')
    ] = "thread"
    cache: Annotated[bool, Meta(description="keep compiled guests in the user's data directory")] = True


class Guest(Section, frozen=True, kw_only=True):
    """One WASM guest. Several are several `[[guest]]` tables."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="its name here")]
    path: Annotated[str, Meta(min_length=1, description="the .wasm file")]
    kind: Annotated[
        Literal["session", "tools"], Meta(description="it owns conversations, or it brings tools for every run")
    ] = "session"
    model: Annotated[str, Meta(description="the model of a session guest that names none")] = ""
    isolation: Annotated[Isolation | None, Meta(description="as guests.isolation, for this guest")] = None
    grants: Annotated[
        tuple[str, ...], Meta(description='server tools that a session guest may offer too: ["get_*"]')
    ] = ()
    wasi_read: Annotated[
        tuple[str, ...], Meta(description='folders it may read: ["data", "/srv/in:/in"]; needs isolation = "process"')
    ] = ()
    wasi_write: Annotated[tuple[str, ...], Meta(description="folders it may read and write, likewise")] = ()
    wasi_env: Annotated[tuple[str, ...], Meta(description="names of environment variables that it sees, likewise")] = ()
    wasi_args: Annotated[tuple[str, ...], Meta(description="its command line, program name first, likewise")] = ()
    effect: Annotated[
        Literal["read", "idempotent", "write", "destructive"], Meta(description="what the tools of a tool guest do")
    ] = "write"
    approval: Annotated[
        Literal["never", "always", "by_effect"], Meta(description="whether a person must agree before one runs")
    ] = "by_effect"
    schema: Annotated[str, Meta(description="JSON file with its tools; empty is PATH.json, else its `describe`")] = ""


class Mcp(Section, frozen=True, kw_only=True):
    """One MCP server whose tools join Treadle's own. Several are several `[[mcp]]` tables."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9]+([_-][A-Za-z0-9]+)*$",
            max_length=32,
            description="its name here: its tools are called mcp__NAME__TOOL",
        ),
    ]
    command: Annotated[tuple[str, ...], Meta(description="starts it here; it speaks over its pipes")] = ()
    url: Annotated[str, Meta(description="or reaches it over streamable HTTP")] = ""
    cwd: Annotated[str, Meta(description="the folder the command starts in; empty is where Treadle was started")] = ""
    env: Annotated[dict[str, str], Meta(description="variables set for the command; never a key")] = {}
    env_from: Annotated[
        tuple[str, ...], Meta(description="variables the command gets from Treadle's own environment, such as a token")
    ] = ()
    key_env: Annotated[str | None, Meta(description="the variable that holds the bearer token for the url")] = None
    headers: Annotated[dict[str, str], Meta(description="more headers for the url; never a key")] = {}
    headers_env: Annotated[dict[str, str], Meta(description="headers whose values are in these variables")] = {}
    tools: Annotated[tuple[str, ...], Meta(description="patterns of the server's own tool names that are let in")] = (
        "*",
    )
    trusted: Annotated[
        bool,
        Meta(
            description="believe its hints also where they make a tool less dangerous than `effect`, and hide neither "
            "Treadle's files nor its ports from its command"
        ),
    ] = False
    effect: Annotated[
        Literal["read", "idempotent", "write", "destructive"], Meta(description="what its tools do, unless hinted")
    ] = "write"
    approval: Annotated[
        Literal["never", "always", "by_effect"], Meta(description="whether a person must agree before one runs")
    ] = "by_effect"
    timeout_s: Annotated[float, Meta(gt=0, description="time for one call")] = 60.0
    connect_s: Annotated[float, Meta(gt=0, description="time to connect, and to list its tools")] = 15.0
    tools_max: Annotated[int, Meta(ge=1, le=1000, description="tools taken from it")] = 128


class Settings(Section, frozen=True, kw_only=True):
    """Everything that can be configured."""

    default_model: Annotated[str, Meta(description="the model of `chat` and `run`, and of requests that name none")] = (
        ""
    )
    extended_events: Annotated[
        bool, Meta(description="add the response.output_tool_call.* events to every Responses stream")
    ] = False
    strict_fidelity: Annotated[
        bool, Meta(description="refuse what cannot be carried whole, instead of dropping a part of it")
    ] = False
    record: Annotated[
        str, Meta(description="a folder to record every upstream call in, as cassettes; empty is off")
    ] = ""
    server: ServerSection = ServerSection()
    store: StoreSection = StoreSection()
    limits: LimitsSection = LimitsSection()
    terminal: TerminalSection = TerminalSection()
    tools: ToolsSection = ToolsSection()
    policy: PolicySection = PolicySection()
    approvals: ApprovalsSection = ApprovalsSection()
    workspace: WorkspaceSection = WorkspaceSection()
    repair: RepairSection = RepairSection()
    cache: CacheSection = CacheSection()
    keys: KeysSection = KeysSection()
    rates: RatesSection = RatesSection()
    runner: RunnerSection = RunnerSection()
    telemetry: TelemetrySection = TelemetrySection()
    guests: GuestsSection = GuestsSection()
    upstreams: UpstreamsSection = UpstreamsSection()
    upstream: tuple[Upstream, ...] = ()
    route: tuple[Route, ...] = ()
    price: tuple[Price, ...] = ()
    rate: tuple[ApiRate, ...] = ()
    guest: tuple[Guest, ...] = ()
    mcp: tuple[Mcp, ...] = ()

    @property
    def model(self) -> str:
        """Return the model to use when nobody names one; empty when that can not be known."""
        if self.default_model or not self.upstream:
            return self.default_model or DEMO_MODEL
        names = (name for upstream in self.upstream for name in upstream.models if "*" not in name)
        return next(names, "")

    @property
    def offers_demo_tools(self) -> bool:
        """Tell whether the demo tools are on: their answers are invented, so a real model never gets them."""
        has_own = bool(self.tools.load or self.mcp or self.upstream)
        return self.tools.enabled and self.tools.demo and not has_own


def for_terminal(settings: Settings) -> Settings:
    """Return the settings with the terminal's limits and local tools in the gateway's places."""
    terminal = settings.terminal
    limits = msgspec.structs.replace(
        settings.limits,
        max_iterations=terminal.max_tool_turns,
        max_total_tool_calls=terminal.max_tool_calls,
        max_tool_output_bytes=terminal.max_tool_output_bytes,
        stored_bytes_max=terminal.max_output_size,
        arguments_bytes_max=terminal.arguments_bytes_max,
        wall_s=terminal.wall_s,
    )
    local = settings.tools.local
    # A person is asked about every command that nothing confines, so bash may be offered here in any case.
    is_asked = local.policy == "ask" and terminal.policy != "trust"
    local = msgspec.structs.replace(
        local, enabled=local.enabled or terminal.local, allow_unconfined=local.allow_unconfined or is_asked
    )
    tools = msgspec.structs.replace(settings.tools, local=local)
    return msgspec.structs.replace(settings, limits=limits, tools=tools)


def sqlite_path(url: str) -> Path:
    """Return the file that a checked `sqlite:///FILE` names; a fourth slash begins an absolute path."""
    return Path(url.removeprefix(SQLITE)).expanduser()
