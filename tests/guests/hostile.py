"""Guests that break every rule they can, each with the answer it must get: an error number, an exit code or a stop."""

# ruff: noqa: E501 - a table with one guest a line

from collections.abc import Callable

import msgspec

from guests.playing import LIMITS, calling
from guests.wat import ALLOCATOR, ECHO, TOOL_TYPE, Wat, schema, with_tool
from treadle.wasm.engine.guest_limits import SandboxLimits
from unit.engine.fakes import FakeModel, ask_for, call, say

SEND = "(call $cchat_send (local.get $fd) (i32.const 0))"
EBADF, EFAULT, EINVAL, EILSEQ, E2BIG, ENOSYS, ELOOP, EBUSY, EEXIST, ENOSPC, EIO, EACCES = (
    -9, -14, -22, -84, -7, -38, -40, -16, -17, -28, -5, -13,
)  # fmt: skip
OK = 1001
"""The fd of the answer to a first send."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One guest: its answer, and what the model must have read of its tools, in order."""

    name: str
    wat: str
    answer: int | str
    model: Callable[[], FakeModel] = lambda: FakeModel(say("hello"))
    results: tuple[str, ...] = ()
    limits: SandboxLimits = LIMITS


CASES: list[Case] = []


SHORT = msgspec.structs.replace(LIMITS, cpu_s=0.05)
"""For guests that will use all of their time anyway."""


def add(name: str, wat: str, answer: int | str, **more: object) -> None:
    """Put a guest on the list."""
    if answer == "timeout":
        more.setdefault("limits", SHORT)
    CASES.append(Case(name=name, wat=wat, answer=answer, **more))


def plain(name: str, run: Callable[[Wat], str], answer: int | str, **more: object) -> None:
    """Put a guest on the list that only needs a body."""
    wat = Wat()
    build = {key: more.pop(key) for key in ("more", "memory", "table", "wasi") if key in more}
    add(name, wat.build(run(wat), **build), answer, **more)


def tool(name: str, body: str, results: tuple[str, ...], answer: int | str = OK, **more: object) -> None:
    """Put a guest on the list whose tool has this body and is called once."""
    guest = with_tool(f"(func $t (type $tool) {body})", **{k: more.pop(k) for k in ("allocator",) if k in more})
    add(name, guest, answer, model=more.pop("model", lambda: calling('{"a":1}')), results=results, **more)


# Time and space.
plain("an endless loop", lambda _: "(loop br 0) (i32.const 0)", "timeout")
plain("an endless loop over host calls", lambda _: "(loop (drop (call $cchat_abi)) br 0) (i32.const 0)", "quota")
plain(
    "an endless recursion",
    lambda _: "(call $deep)",
    "trap",
    more="(func $deep (result i32) (call $deep) (call $deep) i32.add)",
)
plain("a start function that never ends", lambda _: "(i32.const 0)", "timeout", more="(func $s (loop br 0)) (start $s)")
plain("a start function that traps", lambda _: "(i32.const 0)", "trap", more="(func $s unreachable) (start $s)")
plain(
    "an _initialize that never ends",
    lambda _: "(i32.const 0)",
    "timeout",
    more='(func (export "_initialize") (loop br 0))',
)
plain("a bomb of memory.grow", lambda _: "(memory.grow (i32.const 60000))", -1)
plain("memory.grow until there is no more", lambda _: """(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (memory.size)""", 64)  # fmt: skip
plain("a huge first memory", lambda _: "(i32.const 0)", "memory", memory='(memory (export "memory") 10000)')
plain("a bomb of table.grow", lambda _: "(table.grow (ref.null func) (i32.const 1000000))", -1)
plain("a huge first table", lambda _: "(i32.const 0)", "memory", table='(table (export "t") 1000000 funcref)')
plain(
    "five tables",
    lambda _: "(i32.const 0)",
    "memory",
    more="(table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref)",
)
plain("memory.fill without end", lambda _: """(loop (memory.fill (i32.const 4096) (i32.const 1) (i32.const 100000)) br 0)
    (i32.const 0)""", "timeout")  # fmt: skip
plain("a division by zero", lambda _: "(i32.div_s (i32.const 1) (i32.const 0))", "trap")
plain("an unreachable", lambda _: "unreachable", "trap")
plain("a load past the end", lambda _: "(i32.load (i32.const -4))", "trap")
plain(
    "an indirect call to nothing",
    lambda _: "(call_indirect (type $n) (i32.const 3))",
    "trap",
    more="(type $n (func (result i32)))",
)
plain("an indirect call of another type", lambda _: "(call_indirect (type $n) (i32.const 0))", "trap",
      more=f"(type $n (func (result i32))) {ECHO} (elem (i32.const 0) $t)")  # fmt: skip
plain(
    "a log that floods",
    lambda w: "(loop (drop (call $log (i32.const 2) (i32.const 0) (i32.const 16384))) br 0) (i32.const 0)",
    "quota",
)
plain("a log line that is too long", lambda _: "(call $log (i32.const 2) (i32.const 0) (i32.const 16385))", E2BIG)
plain("a log of another level", lambda _: "(call $log (i32.const 9) (i32.const 0) (i32.const 1))", EINVAL)
plain("a log of a negative level", lambda _: "(call $log (i32.const -1) (i32.const 0) (i32.const 1))", EINVAL)
plain("a log from beyond memory", lambda _: "(call $log (i32.const 2) (i32.const 131071) (i32.const 2))", EFAULT)

# Pointers and lengths.
for label, pointer, length, answer in (
    ("past the end", 131_070, 16, EFAULT),
    ("at the very end", 131_072, 1, EFAULT),
    ("negative", -1, 1, EFAULT),
    ("wrapping around", -16, 32, EFAULT),
    ("of two GiB", 0, 0x7FFFFFFF, E2BIG),
    ("of a negative length", 0, -1, E2BIG),
):
    plain(f"a message {label}", lambda w, p=pointer, n=length: f"""{w.user()}
    (call $cchat_write_msg (local.get $fd) {w.text("user")} (i32.const {p}) (i32.const {n}))""", answer)  # fmt: skip
plain("an empty message at the end of memory", lambda w: f"""{w.user()}
    (call $cchat_write_msg (local.get $fd) {w.text("user")} (i32.const 131072) (i32.const 0))""", 0)  # fmt: skip
plain("a length pointer at the last byte", lambda w: f"""{w.user()} (local.set $r {SEND})
    (call $cchat_recv (local.get $r) (i32.const 0) (i32.const 131071))""", EFAULT)  # fmt: skip
plain("an answer that does not fit in memory", lambda w: f"""{w.user()} (local.set $r {SEND})
    (i32.store (i32.const 64) (i32.const 100000))
    (call $cchat_recv (local.get $r) (i32.const 131000) (i32.const 64))""", EFAULT)  # fmt: skip
plain("an answer with too little room", lambda w: f"""{w.user()} (local.set $r {SEND})
    (i32.store (i32.const 64) (i32.const 3))
    (call $cchat_recv (local.get $r) (i32.const 0) (i32.const 64))""", ENOSPC)  # fmt: skip
plain("a parameter whose length is at the last byte", lambda w: f"""{w.user()}
    (call $cchat_ctl (local.get $fd) (i32.const 1) (i32.const 0) (i32.const 131070))""", EFAULT)  # fmt: skip

# Texts.
plain(
    "a role that is not one",
    lambda w: f"{w.user()} (call $cchat_write_msg (local.get $fd) {w.text('king')} {w.text('x')})",
    EINVAL,
)
plain(
    "a forged result",
    lambda w: f"{w.user()} (call $cchat_write_msg (local.get $fd) {w.text('tool')} {w.text('42')})",
    EINVAL,
)
plain(
    "a role that is too long",
    lambda w: f"{w.user()} (call $cchat_write_msg (local.get $fd) {w.text('user' * 20)} {w.text('x')})",
    E2BIG,
)
plain(
    "a role that is not UTF-8",
    lambda w: f"{w.user()} (call $cchat_write_msg (local.get $fd) {w.text(bytes([0xFF]))} {w.text('x')})",
    EILSEQ,
)
plain(
    "a message that is not UTF-8",
    lambda w: f"{w.user()} (call $cchat_write_msg (local.get $fd) {w.text('user')} {w.text(bytes([0xC3, 0x28]))})",
    EILSEQ,
)
plain(
    "half of a surrogate pair",
    lambda w: (
        f"{w.user()} (call $cchat_write_msg (local.get $fd) {w.text('user')} {w.text(bytes([0xED, 0xA0, 0x80]))})"
    ),
    EILSEQ,
)
plain("messages without end", lambda w: f"""{w.user()} (loop $l (br_if $l (i32.eqz
    (call $cchat_write_msg (local.get $fd) {w.text("user")} {w.text("x")}))))
    (call $cchat_write_msg (local.get $fd) {w.text("user")} {w.text("x")})""", E2BIG)  # fmt: skip
plain("text without end", lambda w: f"""{w.user()} (loop $l (br_if $l (i32.eqz
    (call $cchat_write_msg (local.get $fd) {w.text("user")} (i32.const 8192) (i32.const 100000)))))
    (call $cchat_write_msg (local.get $fd) {w.text("user")} (i32.const 8192) (i32.const 100000))""", E2BIG)  # fmt: skip

# Numbers of things that are open.
plain("an fd that was never given out", lambda _: "(call $cchat_close (i32.const 5))", EBADF)
plain("an fd from the future", lambda _: "(call $cchat_close (i32.const 1000))", EBADF)
plain("a negative fd", lambda _: "(call $cchat_send (i32.const -1) (i32.const 0))", EBADF)
plain(
    "a second close",
    lambda w: f"{w.user()} (drop (call $cchat_close (local.get $fd))) (call $cchat_close (local.get $fd))",
    EBADF,
)
plain("a send after close", lambda w: f"{w.user()} (drop (call $cchat_close (local.get $fd))) {SEND}", EBADF)
plain("a message after close", lambda w: f"""{w.user()} (drop (call $cchat_close (local.get $fd)))
    (call $cchat_write_msg (local.get $fd) {w.text("user")} {w.text("x")})""", EBADF)  # fmt: skip
plain(
    "receiving from a conversation",
    lambda w: f"{w.user()} (call $cchat_recv (local.get $fd) (i32.const 0) (i32.const 64))",
    EBADF,
)
plain("sending an answer", lambda w: f"{w.user()} (call $cchat_send {SEND} (i32.const 0))", EBADF)
plain(
    "writing to an answer", lambda w: f"{w.user()} (call $cchat_write_msg {SEND} {w.text('user')} {w.text('x')})", EBADF
)
plain("receiving after close", lambda w: f"""{w.user()} (local.set $r {SEND}) (drop (call $cchat_close (local.get $r)))
    (call $cchat_recv (local.get $r) (i32.const 0) (i32.const 64))""", EBADF)  # fmt: skip
plain("fds without end", lambda _: """(loop $l (br_if $l (i32.gt_s (call $cchat_create) (i32.const 0))))
    (call $cchat_create)""", ENOSPC)  # fmt: skip
plain(
    "fds opened and closed without end",
    lambda _: "(loop (drop (call $cchat_close (call $cchat_create))) br 0) (i32.const 0)",
    "quota",
)
plain("a send with no fd left for its answer", lambda w: f"""{w.user()}
    (loop $l (br_if $l (i32.gt_s (call $cchat_create) (i32.const 0)))) {SEND}""", ENOSPC)  # fmt: skip

# Flags, commands, parameters.
plain("a flag that means nothing", lambda w: f"{w.user()} (call $cchat_send (local.get $fd) (i32.const 8))", EINVAL)
plain("all flags at once", lambda w: f"{w.user()} (call $cchat_send (local.get $fd) (i32.const -1))", EINVAL)
plain("a send of nothing", lambda _: "(call $cchat_send (call $cchat_create) (i32.const 0))", EINVAL)
plain(
    "a command that is not one",
    lambda w: f"{w.user()} (call $cchat_ctl (local.get $fd) (i32.const 99) (i32.const 0) (i32.const 64))",
    EINVAL,
)
plain("a limit over its ceiling", lambda w: f"{w.user()} {w.set('max_iterations', 10000)}", EINVAL)
plain("a key of the host", lambda w: f"{w.user()} {w.set('mcp.task_id', 'x')}", EACCES)
plain("messages by a parameter", lambda w: f"{w.user()} {w.set('messages', [])}", EINVAL)
for label, raw, answer in (
    ("that nests without end", b"[" * 60_000, EIO),
    ("that is NaN", b'{"key":"temperature","value":NaN}', EIO),
    ("that is cut off", b'{"key":', EIO),
    ("that is not UTF-8", b'{"key":"\xff"}', EILSEQ),
    ("with a lone surrogate", b'{"key":"\\ud800","value":1}', EIO),
):
    wat = Wat()
    pointer, at = wat.place(raw)
    add(f"a parameter {label}", wat.build(f"{wat.user()} (call $cchat_ctl (local.get $fd) (i32.const 1) (i32.const {pointer}) (i32.const {at}))",
        memory='(memory (export "memory") 4)'), answer)  # fmt: skip
plain("a temperature that is a text", lambda w: f"{w.user()} (drop {w.set('temperature', 'hot')}) {SEND}", OK)
plain("a model that nobody serves", lambda w: f"{w.user()} (drop {w.set('model', 'missing')}) {SEND}", OK)

# Registering tools.
plain("a tool without a table", lambda w: f"{w.user()} {w.tool()}", ENOSYS, table="")
plain("a tool in an empty slot", lambda w: f"{w.user()} {w.tool()}", EINVAL)
plain("a tool past the table", lambda w: f"{w.user()} {w.tool(offset=4000)}", EINVAL)
plain("a tool at a negative slot", lambda w: f"{w.user()} {w.tool(offset=-2)}", EINVAL)
plain("a tool by an export that is not there", lambda w: f"{w.user()} {w.tool(offset=-1)}", EINVAL)
plain(
    "a tool of another signature",
    lambda w: f"{w.user()} {w.tool()}",
    EINVAL,
    more="(func $w (result i32) (i32.const 0)) (elem (i32.const 0) $w)",
)
plain(
    "a tool by an export of another signature",
    lambda w: f"{w.user()} {w.tool(offset=-1)}",
    EINVAL,
    more='(func (export "tool_t") (result i32) (i32.const 0))',
)
plain(
    "a tool registered twice",
    lambda w: f"{w.user()} (drop {w.tool()}) {w.tool()}",
    EEXIST,
    more=f"{ECHO} (elem (i32.const 0) $t)",
)
for label, raw, answer in (
    ("that is no JSON", "hello", EINVAL),
    ("that is an array", "[]", EINVAL),
    ("without a name", '{"type":"function","function":{}}', EINVAL),
    ("with a name of spaces", schema("a b"), EINVAL),
    ("with a name that is too long", schema("a" * 65), EINVAL),
    ("that nests without end", "[" * 30_000, EINVAL),
    ("that is too large", schema("t") + " " * 70_000, E2BIG),
    ("whose schema is a number", '{"name":"t","parameters":7}', EINVAL),
):
    wat = Wat()
    add(f"a tool {label}", wat.build(f"{wat.user()} (call $cchat_write_fn (local.get $fd) (i32.const 0) {wat.text(raw)})",
        memory='(memory (export "memory") 4)', more=f"{ECHO} (elem (i32.const 0) $t)"), answer)  # fmt: skip
add("AUTO with nowhere to put arguments", with_tool(allocator=""), ENOSYS)

# Tools that misbehave when they are called.
tool("a tool that never returns", "(loop br 0) (i32.const 0)", ("stopped (timeout)",), "timeout")
tool("a tool that traps", "unreachable", ("stopped (trap)",), "trap")
tool(
    "a tool that recurses without end",
    "(call $t (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))",
    ("stopped (trap)",),
    "trap",
)
tool("a tool that reads out of bounds", "(i32.load (i32.const -4))", ("stopped (trap)",), "trap")
tool("a tool that returns an error", "(i32.const -5)", ('"message":"tool rc: -5"}',))
tool("a tool that returns a positive number", "(i32.const 7)", ("tool rc: 7",))
tool("a tool that returns the smallest number", "(i32.const -2147483648)", ("tool rc: -2147483648",))
tool(
    "a tool that returns an error and words of it",
    "(i32.store (local.get 2) (i32.const 0x6f6f74)) (i32.const -5)",
    ('"message":"tool rc: -5: too"}',),
)
tool(
    "a tool that claims a longer output",
    "(i32.store (local.get 3) (i32.const 999999)) (i32.const 0)",
    ("tool rc: 0, but it says that it wrote 999999 bytes, where there was room for",),
)
tool(
    "a tool that claims four GiB",
    "(i32.store (local.get 3) (i32.const -1)) (i32.const 0)",
    ("tool rc: 0, but it says that it wrote 4294967295 bytes, where there was room for",),
)
tool(
    "a tool that wants more room for ever",
    "(i32.store (local.get 3) (i32.add (i32.load (local.get 3)) (i32.const 1))) (i32.const -28)",
    ("tool rc: -28",),
)
tool(
    "a tool that wants more than there is",
    "(i32.store (local.get 3) (i32.const 9999999)) (i32.const -28)",
    ("needs 9999999 bytes",),
)
tool(
    "a tool that wants room but names none",
    "(i32.store (local.get 3) (i32.const 0)) (i32.const -28)",
    ("tool rc: -28",),
)
tool(
    "a tool that gives no UTF-8",
    "(i32.store8 (local.get 2) (i32.const 255)) (i32.store (local.get 3) (i32.const 1)) (i32.const 0)",
    ("not UTF-8",),
)
tool("a tool that sends", "(call $cchat_send (i32.const 1000) (i32.const 2))", (f"tool rc: {ELOOP}",))
tool(
    "a tool that closes its own conversation",
    "(i32.store (local.get 3) (i32.const 0)) (call $cchat_close (i32.const 1000))",
    ("",),
)
tool(
    "a tool that floods with host calls",
    "(loop (drop (call $cchat_abi)) br 0) (i32.const 0)",
    ("stopped (quota)",),
    "quota",
)
tool("a tool that empties its own slot", "(table.set (i32.const 0) (ref.null func)) (i32.store (local.get 3) (i32.const 0)) (i32.const 0)",
     ("", "cannot be called any more"), model=lambda: calling("{}", '{"b":2}'))  # fmt: skip
tool("one of three calls traps", "(if (i32.eq (local.get 1) (i32.const 8)) (then unreachable)) (i32.store (local.get 3) (i32.const 0)) (i32.const 0)",
     ("", "stopped (trap)", "Not run"), "trap", model=lambda: calling("{}", '{"b":20}', '{"c":3}'))  # fmt: skip
for label, body, results, answer in (
    ("gives null", "(i32.const 0)", ("gave no room",), OK),
    ("gives the end of memory", "(i32.const -16)", ("gave no room",), OK),
    ("gives the last byte", "(i32.const 131071)", ("gave no room",), OK),
    ("never returns", "(loop br 0) (i32.const 0)", ("stopped (timeout)",), "timeout"),
    ("traps", "unreachable", ("stopped (trap)",), "trap"),
):
    allocator = f'(func (export "malloc") (param i32) (result i32) {body})'
    add(
        f"an allocator that {label}",
        with_tool(allocator=allocator),
        answer,
        model=lambda: calling("{}"),
        results=results,
    )
add("a free that never returns", with_tool(allocator=ALLOCATOR.replace("(param i32 i32))", "(param i32 i32) (loop br 0))")),
    "timeout", model=lambda: calling("{}"), results=("stopped (timeout)",))  # fmt: skip
_wat = Wat()
add("an arena outside memory", _wat.build(f"""{_wat.user()} (drop {_wat.tool()})
    (drop {_wat.set("tool_arena_ptr", 4_000_000_000)}) (drop {_wat.set("tool_arena_len", 65536)})
    (call $cchat_send (local.get $fd) (i32.const 2))""", more=f"{ECHO} (elem (i32.const 0) $t)"),
    OK, model=lambda: calling("{}"), results=("outside its memory",))  # fmt: skip
_wat = Wat()
add("an arena of eight bytes", _wat.build(f"""{_wat.user()} (drop {_wat.tool()})
    (drop {_wat.set("tool_arena_ptr", 64)}) (drop {_wat.set("tool_arena_len", 8)})
    (call $cchat_send (local.get $fd) (i32.const 2))""", more=f"{ECHO} (elem (i32.const 0) $t)"),
    OK, model=lambda: calling("{}"), results=("gave no room",))  # fmt: skip
add("a host function as a tool", (_wat := Wat()).build(f"""{_wat.user()} (drop {_wat.tool()})
    (call $cchat_send (local.get $fd) (i32.const 2))""", more=f"{ALLOCATOR} (elem (i32.const 0) $cchat_write_fn)"),
    OK, model=lambda: calling("{}"), results=("tool rc: -9",))  # fmt: skip
add(
    "a model that calls what was never registered",
    with_tool(),
    OK,
    model=lambda: calling("{}", name="other"),
    results=("No tool named",),
)
add(
    "a model that calls for ever",
    with_tool(),
    OK,
    model=lambda: FakeModel(ask_for(call("t"))),
    results=("{}", "{}", "limit_reached"),
)
add(
    "arguments that are too large",
    with_tool(),
    OK,
    model=lambda: calling('{"a":"' + "x" * 300_000 + '"}'),
    results=("at most 262144 are passed",),
)

# The manual loop.
plain("a send while calls are open", lambda w: f"{w.user()} (drop {w.tool()}) (drop {SEND}) {SEND}", EBUSY,
      more=f"{ECHO} (elem (i32.const 0) $t)", model=lambda: FakeModel(ask_for(call("t"))))  # fmt: skip
plain(
    "a result for a call that is not open",
    lambda w: f"{w.user()} (call $cchat_write_result (local.get $fd) {w.text('call_9')} {w.text('x')})",
    EINVAL,
)
plain("a second result for one call", lambda w: f"""{w.user()} (drop {w.tool()}) (drop {SEND})
    (drop (call $cchat_write_result (local.get $fd) {w.text("call_1")} {w.text("x")}))
    (call $cchat_write_result (local.get $fd) {w.text("call_1")} {w.text("x")})""", EINVAL,
      more=f"{ECHO} (elem (i32.const 0) $t)", model=lambda: FakeModel(ask_for(call("t"))))  # fmt: skip

# Modules that are no guests.
add("no memory", f'(module {TOOL_TYPE} (func (export "run") (result i32) (i32.const 0)))', "invalid")
add("no entry", '(module (memory (export "memory") 1))', "invalid")
add(
    "an entry of another signature",
    '(module (memory (export "memory") 1) (func (export "run") (param f64)))',
    "invalid",
)
add(
    "a memory that is a function",
    '(module (func (export "memory")) (func (export "run") (result i32) (i32.const 0)))',
    "invalid",
)
add("an import that is not there", '(module (import "env" "system" (func)) (memory (export "memory") 1))', "link")
add(
    "an import of ours that is not there",
    '(module (import "treadle" "cchat_root" (func)) (memory (export "memory") 1))',
    "link",
)
add(
    "an import with other types",
    '(module (import "treadle" "cchat_create" (func (param i64))) (memory (export "memory") 1))',
    "link",
)
add(
    "an imported memory",
    '(module (import "env" "memory" (memory 1)) (func (export "run") (result i32) (i32.const 0)))',
    "link",
)
add("an imported table", '(module (import "env" "table" (table 1 funcref)) (memory (export "memory") 1))', "link")

# WASI.
_WASI = '(import "wasi_snapshot_preview1" "%s" (func $w (param %s) (result i32)))'
plain("proc_exit in a tool", lambda w: f"{w.user()} (drop {w.tool()}) (call $cchat_send (local.get $fd) (i32.const 2))", "exit",
      wasi='(import "wasi_snapshot_preview1" "proc_exit" (func $w (param i32)))', model=lambda: calling("{}"), results=("stopped (exit)",),
      more=f"{ALLOCATOR} (func $t (type $tool) (call $w (i32.const 3)) (i32.const 0)) (elem (i32.const 0) $t)")  # fmt: skip
plain("proc_exit at the top", lambda _: "(call $w (i32.const 3)) (i32.const 0)", 3,
      wasi='(import "wasi_snapshot_preview1" "proc_exit" (func $w (param i32)))')  # fmt: skip
plain(
    "a WASI call that is not offered",
    lambda _: "(call $w (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 64))",
    52,
    wasi=_WASI % ("poll_oneoff", "i32 i32 i32 i32"),
)
plain(
    "a WASI write beyond memory",
    lambda _: "(call $w (i32.const 1) (i32.const 131070) (i32.const 1) (i32.const 64))",
    21,
    wasi=_WASI % ("fd_write", "i32 i32 i32 i32"),
)
plain(
    "a WASI write of a billion pieces",
    lambda _: "(call $w (i32.const 1) (i32.const 0) (i32.const 1000000000) (i32.const 64))",
    21,
    wasi=_WASI % ("fd_write", "i32 i32 i32 i32"),
)
plain(
    "a WASI write to a file",
    lambda _: "(call $w (i32.const 7) (i32.const 0) (i32.const 1) (i32.const 64))",
    8,
    wasi=_WASI % ("fd_write", "i32 i32 i32 i32"),
)
plain(
    "WASI random without end",
    lambda _: "(call $w (i32.const 0) (i32.const -1))",
    28,
    wasi=_WASI % ("random_get", "i32 i32"),
)
plain("a WASI path", lambda _: "(call $w (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 64))",
      52, wasi=_WASI % ("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32"))  # fmt: skip
