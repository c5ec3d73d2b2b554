"""Implements the host calls of one guest (`cchat_*`). Every call returns a number and never raises.

A refused call returns an error number, with a message for `cchat_error`. Exceeding a limit ends the guest.
"""

import functools
import logging
import secrets
import time
from collections.abc import Callable

from treadle.core.items import CallItem, ResultItem, Role, text_message, text_result
from treadle.core.tool_definitions import Outcome, failure
from treadle.wasm.cchat_abi import (
    ABI_VERSION,
    BY_EXPORT_NAME,
    MODULE_COMPATIBLE,
    ROLES,
    RULES,
    TABLE_NAMES,
    CchatFlag,
    CchatRules,
    Command,
    Errno,
    calls_of,
)
from treadle.wasm.cchat_handles import GuestAnswer, GuestChat, GuestTool, Handles
from treadle.wasm.cchat_parameters import read_parameter
from treadle.wasm.cchat_reply import as_history, write_metrics, write_reply
from treadle.wasm.cchat_tool_registration import TOOLS_MAX, RegistrationRefusal, read_tool
from treadle.wasm.engine.guest_instance import GuestSandbox, HostFunction, Import
from treadle.wasm.engine.guest_limits import GuestStopped
from treadle.wasm.engine.minimal_wasi import MODULES as WASI_MODULES
from treadle.wasm.engine.minimal_wasi import Wasi
from treadle.wasm.execution.thread_messages import LEVELS, Answered, Ask, GuestOutput, Line, McpWishes, Sent, Stream
from treadle.wasm.guest_function_call import TOOL_SIGNATURE, Arena, Caller

log = logging.getLogger("treadle.wasm")

ALL_FLAGS = int(CchatFlag.METRICS | CchatFlag.AUTO_TOOL_CALL)
ROLE_BYTES_MAX = 32
ID_BYTES_MAX = 256
Reply = int | RegistrationRefusal


class CchatHost:
    """The host side of one guest. Created and used by the guest's thread."""

    def __init__(self, sandbox: GuestSandbox, line: Line, *, model: str = "", stdin: bytes = b"") -> None:
        limits = sandbox.control.limits
        self._sandbox = sandbox
        self._control = sandbox.control
        self._line = line
        self._model = model
        self._limits = limits
        self._handles = Handles(limits.fds_max)
        self._wasi = Wasi(sandbox, self, stdin)
        self._error = ""
        self._text_bytes = 0
        self._log_bytes = 0
        self._is_in_tool = False
        self.host_calls = 0

    def imports(self) -> dict[tuple[str, str], Import]:
        """Return every host function by import module and name."""
        return {
            (module, call.name): Import(
                signature=call.signature,
                function=functools.partial(self._dispatch, getattr(self, f"_{call.name}"), rules),
            )
            for module, rules in RULES.items()
            for call in calls_of(module)
        }

    @property
    def is_in_tool(self) -> bool:
        """Return whether one of the guest's tools is running, or was when the guest was stopped."""
        return self._is_in_tool

    def stub(self, module: str, name: str) -> HostFunction | None:
        """Return a stub for an import outside cchat: WASI, or a call of the old host that is not implemented."""
        if module in WASI_MODULES:
            return functools.partial(self._counted, self._wasi.stub(name))
        return functools.partial(self._counted, _not_implemented) if module == MODULE_COMPATIBLE else None

    def print(self, fd: int, data: bytes) -> None:
        """Forward what the guest prints; exceeding the limit ends the guest."""
        self._emit("stdout" if fd == 1 else "stderr", data.decode("utf-8", "replace"), len(data))

    def _counted(self, function: HostFunction, *arguments: int) -> int:
        self.host_calls += 1
        if self.host_calls > self._limits.host_calls_max:
            self._control.end("quota", f"The guest made more than {self._limits.host_calls_max} host calls.")
            return -Errno.EAGAIN
        return function(*arguments)

    def _dispatch(self, function: Callable[..., Reply], rules: CchatRules, *arguments: int) -> int:
        return self._counted(functools.partial(self._reply_code, function, rules), *arguments)

    def _reply_code(self, function: Callable[..., Reply], rules: CchatRules, *arguments: int) -> int:
        reply = function(rules, *arguments)
        if isinstance(reply, RegistrationRefusal):
            self._error = reply.message
            return -reply.errno
        return reply

    def _cchat_abi(self, _rules: CchatRules) -> Reply:
        return ABI_VERSION

    def _cchat_create(self, _rules: CchatRules) -> Reply:
        if self._handles.is_full:
            return _refuse(Errno.ENOSPC, f"{self._limits.fds_max} fds are open; close one first")
        return self._handles.open(GuestChat())

    def _cchat_close(self, rules: CchatRules, fd: int) -> Reply:
        if self._handles.close(fd) or (not rules.refuses_second_close and self._handles.was_open(fd)):
            return 0
        return _BAD_FD

    def _cchat_write_msg(
        self, rules: CchatRules, fd: int, role_ptr: int, role_len: int, ptr: int, length: int
    ) -> Reply:
        chat = self._handles.chat(fd)
        if chat is None:
            return _BAD_FD
        role = self._text(role_ptr, role_len, ROLE_BYTES_MAX)
        content = self._stored_text(ptr, length)
        if isinstance(role, RegistrationRefusal) or isinstance(content, RegistrationRefusal):
            return _first_refusal(role, content)
        if role not in ROLES:
            return _refuse(Errno.EINVAL, f"the role {role!r} is not one of {', '.join(sorted(ROLES))}")
        if rules.appends_without_auto and chat.open_calls:
            return _refuse(Errno.EBUSY, "the last turn's calls have no result yet; write those first")
        full = self._is_full(chat)
        if full is not None:
            return full
        chat.items.append(text_message(_role(role), content))
        return 0

    def _cchat_write_result(
        self, _rules: CchatRules, fd: int, id_ptr: int, id_len: int, ptr: int, length: int
    ) -> Reply:
        chat = self._handles.chat(fd)
        if chat is None:
            return _BAD_FD
        call_id = self._text(id_ptr, id_len, ID_BYTES_MAX)
        content = self._stored_text(ptr, length)
        if isinstance(call_id, RegistrationRefusal) or isinstance(content, RegistrationRefusal):
            return _first_refusal(call_id, content)
        call = chat.open_calls.pop(call_id, None)
        if call is None:
            return _refuse(Errno.EINVAL, f"there is no open call {call_id!r}")
        chat.items.append(text_result(call, content))
        return 0

    def _cchat_write_fn(self, rules: CchatRules, fd: int, offset: int, ptr: int, length: int) -> Reply:
        chat = self._handles.chat(fd)
        if chat is None:
            return _BAD_FD
        data = self._bytes(ptr, length, self._limits.text_bytes_max)
        if isinstance(data, RegistrationRefusal):
            return data
        spec = read_tool(data, chat.tools)
        wrong = spec if isinstance(spec, RegistrationRefusal) else self._function_refusal(offset, spec.name)
        if len(chat.tools) >= TOOLS_MAX:
            wrong = _refuse(Errno.ENOSPC, f"at most {TOOLS_MAX} tools can be registered")
        if wrong is not None and rules.refuses_bad_tools:
            return wrong
        if isinstance(spec, RegistrationRefusal) or (wrong is not None and wrong.errno is Errno.ENOSPC):
            log.warning("a tool of a guest cannot be called", extra={"reason": wrong.message if wrong else ""})
            return 0
        chat.tools[spec.name] = GuestTool(spec=spec, offset=offset)
        return 0

    def _function_refusal(self, offset: int, name: str) -> RegistrationRefusal | None:
        """Return why a function cannot be called as a tool; None if it can. The guest may change its table later."""
        if offset < BY_EXPORT_NAME:
            return _refuse(Errno.EINVAL, f"{offset} is neither a slot of a table nor -1")
        if offset == BY_EXPORT_NAME:
            found = self._sandbox.function(f"tool_{name}", TOOL_SIGNATURE)
            return None if found else _refuse(Errno.EINVAL, f"no export `tool_{name}` with the signature of a tool")
        table = self._sandbox.table(TABLE_NAMES)
        if table is None:
            return _refuse(Errno.ENOSYS, "the guest exports no table of functions")
        found = self._sandbox.slot(table, offset)
        if found is None or not self._sandbox.fits(found, TOOL_SIGNATURE):
            return _refuse(Errno.EINVAL, f"slot {offset} of the table holds no function with the signature of a tool")
        return None

    def _cchat_ctl(self, _rules: CchatRules, fd: int, command: int, ptr: int, len_ptr: int) -> Reply:
        found = self._handles.get(fd)
        if found is None:
            return _BAD_FD
        if command == Command.GET_METRICS:
            return self._copy_out(found.metrics, ptr, len_ptr)
        if command != Command.SET_PARAM or not isinstance(found, GuestChat):
            return _refuse(Errno.EINVAL, f"{command} is not a command for this fd")
        length = self._sandbox.read_u32(len_ptr)
        data = _FAULT if length is None else self._bytes(ptr, length, self._limits.text_bytes_max)
        parameter = data if isinstance(data, RegistrationRefusal) else read_parameter(data)
        if isinstance(parameter, RegistrationRefusal):
            return parameter
        found.set(parameter)
        return 0

    def _cchat_recv(self, _rules: CchatRules, fd: int, ptr: int, len_ptr: int) -> Reply:
        found = self._handles.get(fd)
        if not isinstance(found, GuestAnswer):
            return _BAD_FD
        return self._copy_out(found.body, ptr, len_ptr)

    def _cchat_error(self, _rules: CchatRules, ptr: int, len_ptr: int) -> Reply:
        return self._copy_out(self._error.encode("utf-8", "replace"), ptr, len_ptr)

    def _cchat_send(self, rules: CchatRules, fd: int, flags: int) -> Reply:
        chat = self._handles.chat(fd)
        if chat is None:
            return _BAD_FD
        refusal = self._send_refusal(chat, flags, rules)
        if refusal is not None:
            return refusal
        is_auto = bool(flags & CchatFlag.AUTO_TOOL_CALL)
        try:
            sent = self._send(chat, is_auto)
        except GuestStopped:
            self._line.give_up()
            return -Errno.EIO
        if is_auto or rules.appends_without_auto:
            self._append_turn(chat, sent)
        metrics = write_metrics(sent) if flags & CchatFlag.METRICS else b"{}"
        chat.metrics = metrics
        return self._handles.open(GuestAnswer(body=write_reply(sent), metrics=metrics))

    def _send_refusal(self, chat: GuestChat, flags: int, rules: CchatRules) -> RegistrationRefusal | None:
        if flags & ~ALL_FLAGS:
            return _refuse(Errno.EINVAL, f"the flags {flags:#x} have bits that mean nothing")
        if self._is_in_tool:
            return _refuse(Errno.ELOOP, "a tool cannot send; return first")
        if self._handles.is_full:
            return _refuse(Errno.ENOSPC, f"{self._limits.fds_max} fds are open; close one first")
        if rules.appends_without_auto and chat.open_calls:
            return _refuse(Errno.EBUSY, "calls of the last turn have no result yet")
        if not chat.items:
            return _refuse(Errno.EINVAL, "there is no message to send")
        if flags & CchatFlag.AUTO_TOOL_CALL and chat.tools and not self._caller(chat).has_room:
            return _refuse(Errno.ENOSYS, "no cchat_alloc, no malloc and no tool arena: nowhere to put arguments")
        return None

    def _send(self, chat: GuestChat, is_auto: bool) -> Sent:
        """Run the conversation, and call the guest's tools when the run requests them.

        Raises: GuestStopped.
        """
        timeout_ms = chat.chosen("timeout_ms")
        self._line.ask(
            Ask(
                items=tuple(chat.items),
                tools=tuple(tool.spec for tool in chat.tools.values()),
                auto=is_auto,
                model=chat.chosen("model") or self._model,
                parameters=chat.upstream,
                max_iterations=chat.chosen("max_iterations"),
                max_total_tool_calls=chat.chosen("max_total_tool_calls"),
                max_tool_output_bytes=chat.get("max_tool_output_bytes"),
                timeout_s=None if timeout_ms is None else timeout_ms / 1_000,
                mcp=_mcp_wishes(chat),
            )
        )
        while not isinstance(wanted := self._line.next(), Sent):
            try:
                outcome = self._run_tool(chat, wanted.call)
            except GuestStopped as stopped:
                words = f"The guest was stopped ({stopped.stop.code}) while this tool ran."
                self._line.answer(Answered(outcome=failure("failed", words), stop=stopped.stop))
                raise
            self._line.answer(Answered(outcome=outcome))
        return wanted

    def _run_tool(self, chat: GuestChat, call: CallItem) -> Outcome:
        tool = chat.tools.get(call.name)
        if tool is None:
            return failure("unknown_tool", f"The guest has no tool {call.name!r}.")
        wrong = self._function_refusal(tool.offset, call.name)
        if wrong is not None:
            return failure("failed", f"The tool cannot be called any more: {wrong.message}.")
        if tool.offset == BY_EXPORT_NAME:
            function = self._sandbox.function(f"tool_{call.name}", TOOL_SIGNATURE)
        else:
            table = self._sandbox.table(TABLE_NAMES)
            function = None if table is None else self._sandbox.slot(table, tool.offset)
        assert function is not None, "it was found usable"
        self._is_in_tool = True
        outcome = self._caller(chat).call(function, call.arguments, chat.get("max_tool_output_bytes"))
        self._is_in_tool = False
        return outcome

    def _caller(self, chat: GuestChat) -> Caller:
        pointer, length = chat.chosen("tool_arena_ptr"), chat.chosen("tool_arena_len")
        arena = None if pointer is None or not length else Arena(pointer=pointer, length=length)
        return Caller(self._sandbox, arena)

    def _append_turn(self, chat: GuestChat, sent: Sent) -> None:
        """Append the turn to the conversation and record its calls without a result."""
        chat.items.extend(as_history(sent.items))
        answered = {item.call_id for item in sent.items if isinstance(item, ResultItem)}
        calls = (item for item in sent.items if isinstance(item, CallItem))
        chat.open_calls = {call.call_id: call for call in calls if call.call_id not in answered}

    def _is_full(self, chat: GuestChat) -> RegistrationRefusal | None:
        if len(chat.items) >= self._limits.messages_max:
            return _refuse(Errno.E2BIG, f"a conversation has at most {self._limits.messages_max} messages")
        return None

    def _log(self, _rules: CchatRules, level: int, ptr: int, length: int) -> Reply:
        if not 0 <= level < len(LEVELS):
            return _refuse(Errno.EINVAL, f"a level is 0 to {len(LEVELS) - 1}, not {level}")
        data = self._bytes(ptr, length, self._limits.log_line_bytes_max)
        if isinstance(data, RegistrationRefusal):
            return data
        self._emit("log", data.decode("utf-8", "replace"), len(data), level)
        return 0

    def _emit(self, stream: Stream, text: str, size: int, level: int = 2) -> None:
        self._log_bytes += size
        if self._log_bytes > self._limits.log_bytes_max:
            self._control.end("quota", f"The guest logged more than {self._limits.log_bytes_max} bytes.")
            return
        self._line.write_output(GuestOutput(stream=stream, text=text, level=level))

    def _time_now_ms(self, _rules: CchatRules) -> Reply:
        return time.time_ns() // 1_000_000

    def _wall_time_s(self, _rules: CchatRules) -> Reply:
        return time.time_ns() // 1_000_000_000

    def _random_i64(self, _rules: CchatRules) -> Reply:
        return secrets.randbits(64) - 2**63

    def _bytes(self, ptr: int, length: int, bytes_max: int) -> bytes | RegistrationRefusal:
        if length & 0xFFFFFFFF > bytes_max:
            return _refuse(Errno.E2BIG, f"{length & 0xFFFFFFFF} bytes; at most {bytes_max} are taken")
        data = self._sandbox.read(ptr, length)
        return _FAULT if data is None else data

    def _text(self, ptr: int, length: int, bytes_max: int) -> str | RegistrationRefusal:
        data = self._bytes(ptr, length, bytes_max)
        if isinstance(data, RegistrationRefusal):
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            return _refuse(Errno.EILSEQ, f"not UTF-8 at byte {error.start}")

    def _stored_text(self, ptr: int, length: int) -> str | RegistrationRefusal:
        """Read text for a conversation, within the limit for all of the guest's conversations together."""
        text = self._text(ptr, length, self._limits.text_bytes_max)
        if isinstance(text, RegistrationRefusal):
            return text
        self._text_bytes += length & 0xFFFFFFFF
        if self._text_bytes > self._limits.text_bytes_max:
            return _refuse(Errno.E2BIG, f"more than {self._limits.text_bytes_max} bytes of text in all")
        return text

    def _copy_out(self, data: bytes, ptr: int, len_ptr: int) -> Reply:
        """Write bytes into the guest's buffer; if it is too small, write the needed length and return -ENOSPC."""
        capacity = self._sandbox.read_u32(len_ptr)
        if capacity is None:
            return _FAULT
        if capacity < len(data):
            self._sandbox.write_u32(len_ptr, len(data))
            return _refuse(Errno.ENOSPC, f"{len(data)} bytes are needed")
        if not (self._sandbox.write(ptr, data) and self._sandbox.write_u32(len_ptr, len(data))):
            return _FAULT
        return len(data)


def _refuse(errno: Errno, message: str) -> RegistrationRefusal:
    return RegistrationRefusal(errno=errno, message=message)


_BAD_FD = _refuse(Errno.EBADF, "no such fd is open here")
_FAULT = _refuse(Errno.EFAULT, "the range is not within the guest's memory")
_ROLES: dict[str, Role] = {"system": "system", "developer": "developer", "user": "user", "assistant": "assistant"}


def _first_refusal(*values: str | RegistrationRefusal) -> RegistrationRefusal:
    return next(value for value in values if isinstance(value, RegistrationRefusal))


def _role(name: str) -> Role:
    return _ROLES[name]


def _mcp_wishes(chat: GuestChat) -> McpWishes:
    """Return which MCP tools a conversation offers; unset fields mean all that were granted."""
    servers, allowed = chat.chosen("mcp.server_ids"), chat.chosen("mcp.tool_allowlist")
    return McpWishes(
        enabled=chat.chosen("mcp.enabled") is not False,
        servers=None if servers is None else tuple(servers),
        allowed=None if allowed is None else tuple(allowed),
        denied=tuple(chat.chosen("mcp.tool_denylist") or ()),
    )


def _not_implemented(*_: int) -> int:
    return -Errno.ENOSYS
