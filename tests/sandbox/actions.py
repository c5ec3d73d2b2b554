"""Hostile actions: a script that says ESCAPED when it got where it should not, and the level from which it cannot.

Below that level the action must succeed where `opens` says so: that shows that the script is able to find an escape.
"""

from typing import NamedTuple


class Action(NamedTuple):
    """One thing a command might try. `holds_from` is the lowest level that stops it; 9 is none.

    `opens` are the levels below at which it is known to succeed, `abi` the version of Landlock that can stop it below
    L3, `risky` what must not be tried unconfined, `is_root` what only root could do at all.
    """

    script: str
    holds_from: int = 1
    opens: tuple[int, ...] = (0,)
    abi: int = 1
    risky: bool = False
    is_root: bool = False


def python(code: str) -> str:
    """Write a script that runs Python code, in which whatever is raised is no escape."""
    body = "\n".join(f"    {line}" for line in code.strip().splitlines())
    return f"""exec "$PY" -I -S - <<'CODE'
import ctypes, os, socket, struct, sys
env = os.environ
raw = ctypes.CDLL(None, use_errno=True).syscall
def call(*args): return raw(*[ctypes.c_long(each) if isinstance(each, int) else each for each in args])
def refused(): return ctypes.get_errno() in (1, 13, 38)
try:
{body}
except OSError as error:
    print("refused:", error)
CODE
"""


ACTIONS: dict[str, Action] = {
    # reading outside
    "read_a_file": Action('grep -q the-secret "$OUT/secret" && echo ESCAPED'),
    "list_a_folder": Action('ls "$OUT" | grep -q secret && echo ESCAPED'),
    "read_through_a_link": Action('ln -s "$OUT/secret" link; grep -q the-secret link && echo ESCAPED'),
    "read_through_dots": Action("grep -q the-secret ../outside/secret && echo ESCAPED"),
    "read_through_proc_root": Action('grep -q the-secret "/proc/self/root$OUT/secret" && echo ESCAPED'),
    "read_through_a_hard_link": Action('ln "$OUT/secret" hard; grep -q the-secret hard && echo ESCAPED'),
    "read_the_password_hashes": Action("head -c 1 /etc/shadow | grep -q . && echo ESCAPED", is_root=True),
    "read_the_scratch_of_another_session": Action('grep -q the-secret "$OWN_SCRATCH/secret" && echo ESCAPED'),
    "read_a_disk": Action("for d in /dev/vda /dev/sda /dev/nvme0n1; do head -c1 $d && echo ESCAPED; done", opens=()),
    "read_shared_memory_files": Action(
        "ls /dev/shm/. >/dev/null && echo x > /dev/shm/$MARKER && rm /dev/shm/$MARKER && ! "
        'grep -q "tmpfs /dev/shm.*size=262144k" /proc/self/mounts && echo ESCAPED'
    ),
    # writing outside
    "make_a_file": Action('echo x > "$OUT/new" && echo ESCAPED'),
    "append_to_a_file": Action('echo x >> "$OUT/secret" && echo ESCAPED'),
    "truncate_a_file": Action(python('os.truncate(env["OUT"] + "/secret", 0)\nprint("ESCAPED")'), abi=3),
    "remove_a_file": Action('rm -f "$OUT/secret"; [ -e "$OUT/secret" ] || echo ESCAPED', opens=(0,)),
    "move_a_file_in": Action('mv "$OUT/secret" here && [ -s here ] && echo ESCAPED'),
    "move_a_file_out": Action('mv inside "$OUT/moved" && echo ESCAPED'),
    "make_a_folder": Action('mkdir "$OUT/folder" && echo ESCAPED'),
    "make_a_link": Action('ln -s /etc/passwd "$OUT/link" && echo ESCAPED'),
    "make_a_device": Action("mknod disk b 8 0 && echo ESCAPED", is_root=True),
    "change_a_mode": Action('chmod 666 "$OUT/secret" && echo ESCAPED', holds_from=3, opens=(0, 1, 2)),
    "change_a_time": Action(
        python('os.utime(env["OUT"] + "/secret", (1, 1))\nprint("ESCAPED")'), holds_from=3, opens=(0, 1, 2)
    ),
    "change_a_kernel_setting": Action(": >> /proc/sys/kernel/core_pattern && echo ESCAPED", risky=True, opens=()),
    "write_a_temporary_file_for_others": Action(
        "echo x > /var/tmp/$MARKER && echo ESCAPED; rm -f /var/tmp/$MARKER", opens=(0,)
    ),
    # other processes
    "read_an_environment": Action('tr "\\0" "\\n" < /proc/$VICTIM/environ | grep -q the-secret && echo ESCAPED'),
    "read_a_command_line": Action(
        'tr "\\0" " " < /proc/$VICTIM/cmdline | grep -q "sleep 300" && echo ESCAPED', holds_from=3, opens=(0, 1, 2)
    ),
    "enter_a_working_folder": Action("cat /proc/$VICTIM/cwd/secret | grep -q the-secret && echo ESCAPED"),
    "follow_an_open_file": Action("readlink /proc/$VICTIM/fd/0 && echo ESCAPED"),
    "write_the_memory_of_the_supervisor": Action("exec 3<>/proc/$PPID/mem && echo ESCAPED", opens=()),
    "trace_a_process": Action(
        python('print("ESCAPED" if call(101, 16, int(env["VICTIM"]), 0, 0) == 0 else "refused")'), opens=(0,)
    ),
    "read_the_memory_of_a_process": Action(
        python('if call(310, int(env["VICTIM"]), None, 0, None, 0, 0) >= 0: print("ESCAPED")')
    ),
    "signal_a_process": Action("kill -0 $VICTIM && echo ESCAPED", holds_from=2, opens=(0, 1), abi=6),
    "take_a_descriptor_of_a_process": Action(
        python(
            'fd = os.pidfd_open(int(env["VICTIM"]))\nif call(438, fd, 0, 0) >= 0: print("ESCAPED")',
        )
    ),
    # network and sockets
    "connect_by_tcp": Action(
        python('s = socket.create_connection(("127.0.0.1", int(env["TCP"])), 5)\nprint("ESCAPED", s.recv(99))')
    ),
    "connect_by_the_shell": Action("exec 3<>/dev/tcp/127.0.0.1/$TCP && echo ESCAPED"),
    "open_an_internet_socket": Action(python('socket.socket(socket.AF_INET)\nprint("ESCAPED")')),
    "send_a_datagram": Action(
        python('socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))\nprint("ESCAPED")')
    ),
    "listen_for_others": Action(python('s = socket.socket()\ns.bind(("127.0.0.1", 0))\ns.listen()\nprint("ESCAPED")')),
    "connect_to_a_unix_socket": Action(
        python('s = socket.socket(socket.AF_UNIX)\ns.connect(env["OUT"] + "/socket")\nprint("ESCAPED", s.recv(99))')
    ),
    "connect_to_an_abstract_socket": Action(
        python('s = socket.socket(socket.AF_UNIX)\ns.connect("\\0" + env["ABSTRACT"])\nprint("ESCAPED", s.recv(99))')
    ),
    "send_from_a_pair_to_an_address": Action(
        python(
            "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            'a.sendmsg([b"x"], [], 0, env["OUT"] + "/mailbox")\nprint("ESCAPED")'
        )
    ),
    "make_a_socket_in_the_folder": Action(
        python('s = socket.socket(socket.AF_UNIX)\ns.bind("made.sock")\nprint("ESCAPED")')
    ),
    "open_a_netlink_socket": Action(python('socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)\nprint("ESCAPED")')),
    "find_shared_memory": Action(python('if call(29, int(env["SHM_KEY"]), 0, 0) >= 0: print("ESCAPED")')),
    # the kernel
    "make_a_namespace": Action("unshare --user --map-root-user true && echo ESCAPED"),
    "clone_into_a_namespace": Action(
        python("pid = call(56, 0x10000000 | 17, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nif pid > 0: print('ESCAPED')")
    ),
    "enter_a_namespace": Action(
        python(
            'fd = os.open("/proc/" + env["VICTIM"] + "/ns/net", os.O_RDONLY)\n'
            'if call(308, fd, 0) == 0: print("ESCAPED")'
        ),
        is_root=True,
    ),
    "mount_something": Action("mkdir m && mount -t tmpfs none m && echo ESCAPED", risky=True, opens=()),
    "change_the_root": Action(python('os.chroot("/")\nprint("ESCAPED")'), is_root=True),
    "queue_calls_past_the_filter": Action(
        python("params = (ctypes.c_char * 120)()\nif call(425, 1, params) >= 0 or not refused(): print('ESCAPED')"),
        opens=(),
    ),
    "load_a_kernel_program": Action(
        python("if call(321, 0, (ctypes.c_char * 120)(), 120) >= 0: print('ESCAPED')"), opens=(), is_root=True
    ),
    "store_a_kernel_key": Action(
        python("if call(248, b'user', b'treadle', b'x', 1, -2) >= 0: print('ESCAPED')"), opens=()
    ),
    "open_a_file_by_handle": Action(
        python("if call(304, -100, (ctypes.c_char * 136)(), 0) >= 0 or not refused(): print('ESCAPED')"), opens=()
    ),
    "keep_a_capability": Action(
        'grep -q "^CapEff:\\s*0000000000000000" /proc/self/status || echo ESCAPED', is_root=True
    ),
    "gain_privileges_by_exec": Action('grep -q "^NoNewPrivs:\\s*1" /proc/self/status || echo ESCAPED'),
    # inside the folder
    "plant_a_git_hook": Action("echo x > .git/hooks/pre-commit && echo ESCAPED", holds_from=3, opens=(0, 1, 2)),
    "plant_a_git_setting": Action("echo x >> .git/config && echo ESCAPED", holds_from=3, opens=(0, 1, 2)),
    "move_the_repository_away": Action("mv .git away && mkdir .git && echo ESCAPED", holds_from=3, opens=(0, 1, 2)),
    "read_a_secret_in_the_folder": Action("grep -q the-secret .env && echo ESCAPED", holds_from=3, opens=(0, 1, 2)),
    # what the command is given
    "find_a_secret_in_the_environment": Action("env | grep -q the-secret && echo ESCAPED", holds_from=0),
    "find_open_descriptors": Action(
        python(
            'open_fds = [fd for fd in range(3, 1024) if os.path.exists(f"/proc/self/fd/{fd}")]\n'
            'if any(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in open_fds): print("ESCAPED")'
        ),
        holds_from=0,
    ),
    "read_from_the_terminal": Action("read -t 1 line && echo ESCAPED", holds_from=0),
    "open_the_terminal": Action("(exec 3<>/dev/tty) 2>/dev/null && echo ESCAPED", holds_from=0),
}
"""All that a single command can try; what outlives it is in the tests themselves."""
