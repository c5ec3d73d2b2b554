"""Guests as WAT text, with as little ceremony as possible."""

import json

from treadle.wasm.cchat_abi import calls_of

ALLOCATOR = """
  (global $heap (mut i32) (i32.const 32768))
  (func $alloc (export "cchat_alloc") (param $n i32) (result i32) (local $p i32)
    (local.set $p (global.get $heap))
    (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get $n) (i32.const 15)) (i32.const -8))))
    (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
      (then (drop (memory.grow (i32.const 2)))))
    (local.get $p))
  (func (export "cchat_free") (param i32 i32))
"""
TOOL_TYPE = "(type $tool (func (param i32 i32 i32 i32) (result i32)))"
ECHO = """(func $t (type $tool)
    (memory.copy (local.get 2) (local.get 0) (local.get 1))
    (i32.store (local.get 3) (local.get 1)) (i32.const 0))"""
"""A tool that gives its arguments back."""


def schema(name: str = "t") -> str:
    """Return the JSON by which a guest registers a tool."""
    return f'{{"type":"function","function":{{"name":"{name}","parameters":{{"type":"object"}}}}}}'


class Wat:
    """A guest in the making: texts get their place in memory, host calls their imports."""

    def __init__(self, module: str = "treadle") -> None:
        self.module = module
        self._data: list[str] = []
        self._next = 1_024

    def text(self, value: str | bytes) -> str:
        """Place a text and return its pointer and length as two operands."""
        raw = value.encode() if isinstance(value, str) else value
        at, self._next = self._next, self._next + len(raw) + 8
        escaped = "".join(f"\\{byte:02x}" for byte in raw)
        self._data.append(f'  (data (i32.const {at}) "{escaped}")')
        return f"(i32.const {at}) (i32.const {len(raw)})"

    def place(self, value: str | bytes) -> tuple[int, int]:
        """Place a text and the u32 of its length behind it; return both addresses."""
        raw = value.encode() if isinstance(value, str) else value
        pointer = self._next
        self.text(raw)
        self._next = (self._next + 3) & ~3
        at = self._next
        self.text(len(raw).to_bytes(4, "little"))
        return pointer, at

    def user(self, text: str = "hi") -> str:
        """Open a conversation with one message; its fd is in $fd."""
        return f"""(local.set $fd (call $cchat_create))
    (drop (call $cchat_write_msg (local.get $fd) {self.text("user")} {self.text(text)}))"""

    def set(self, key: str, value: object) -> str:
        """Set a parameter of $fd and leave the result."""
        pointer, length = self.place(json.dumps({"key": key, "value": value}))
        return f"(call $cchat_ctl (local.get $fd) (i32.const 1) (i32.const {pointer}) (i32.const {length}))"

    def tool(self, name: str = "t", offset: int = 0) -> str:
        """Register a tool of $fd and leave the result."""
        return f"(call $cchat_write_fn (local.get $fd) (i32.const {offset}) {self.text(schema(name))})"

    def build(
        self,
        run: str,
        *,
        more: str = "",
        memory: str = '(memory (export "memory") 2)',
        table: str = '(table (export "__indirect_function_table") 4 funcref)',
        wasi: str = "",
    ) -> str:
        """Return the module: `run` is the body of its entry and leaves an i32."""
        calls = calls_of(self.module)
        imports = "\n".join(
            f'  (import "{self.module}" "{call.name}" (func ${call.name}'
            f" (param {' '.join(['i32'] * len(call.parameters))}) (result {call.result})))"
            for call in calls
        )
        data = "\n".join(self._data)
        return f"""(module
  {TOOL_TYPE}
{imports}
  {wasi}
  {memory}
  {table}
{data}
  {more}
  (func $run (export "run") (result i32) (local $fd i32) (local $r i32) (local $i i32)
    {run}))"""


def with_tool(tool: str = ECHO, *, module: str = "treadle", allocator: str = ALLOCATOR, flags: int = 2) -> str:
    """Return a guest that registers the tool `t` from slot 0, sends with AUTO and returns what send said."""
    wat = Wat(module)
    run = f"""{wat.user()}
    (drop {wat.tool()})
    (call $cchat_send (local.get $fd) (i32.const {flags}))"""
    return wat.build(run, more=f"{allocator}\n  {tool}\n  (elem (i32.const 0) $t)")
