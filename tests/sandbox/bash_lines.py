"""Random command lines that try to change something: a grammar of bash, mutations, and every bypass that was found.

`NEW` stands in the name of each file that a line makes, so that one made anywhere is found. A line may use `$OUT` (a
folder outside), `$TCP`, `$VICTIM` (a process outside) and `$PY`.
"""

import random
from collections.abc import Callable

NEW = "zq7made"

BYPASSES = (
    "true; > file",
    "true; > sub/inner",
    f"echo 'a[$(touch {NEW})]'; [[ _ -eq 1 ]]",
    f"[[ 'a[$(touch {NEW})]' -eq 1 ]]",
    f"[[ -v 'a[$(touch {NEW})]' ]]",
    f"test -v 'a[$(touch {NEW})]'",
    "[[ PATH=1 -eq 1 ]]; ls",
    f"ls a\r#; touch {NEW}",
    f"echo ==\ntouch {NEW}",
    f"[ a ]#;touch {NEW}",
    f"find . -ex\\\nec touch {NEW} ';'",
    f"find . -e[x]ec touch {NEW} ';'",
    f"find . -maxdepth 0 -exec touch {NEW} ';'",
    f"find . -maxdepth 0 -fprint {NEW}",
    "find . -name file -delete",
    "echo evil | uniq - file",
    f"echo evil | uniq - {NEW}",
    f"sort --o={NEW} file",
    f"sort --compress-program=./script.sh -S 1k -o {NEW} file",
    "echo x > 123",
    "echo x &> 7",
    f"echo x >& {NEW}",
    f"ls >| {NEW}",
    f"printf -v X x; echo $X > {NEW}",
    f"git diff --output={NEW} --no-index file sub/inner",
    "git log --ext-diff -p",
    "git status",
    "git -c core.fsmonitor=./script.sh status",
    "git grep --open-files-in-pager=./script.sh text",
    "git show --textconv HEAD:file",
    "rg --pre ./script.sh text",
    f"awk 'BEGIN{{system(\"touch {NEW}\")}}'",
    f"awk 'BEGIN{{print 1 > \"{NEW}\"}}'",
    f"jq -n '1' > {NEW}",
    f"file -C -m {NEW}",
    f"tree -o {NEW}",
    f"echo `touch {NEW}`",
    f"echo $(touch {NEW})",
    f"cat <(touch {NEW})",
    f"ls {{-la,$(touch {NEW})}}",
    f"X='a[$(touch {NEW})]'; echo $((X))",
    f"ls; : ${{X:=$(touch {NEW})}}",
    f"ls() {{ touch {NEW}; }}; ls",
    f"exec 3<>{NEW}; ls",
    "exec 3<>file; echo x >&3",
    f"trap 'touch {NEW}' EXIT; ls",
    f"trap 'touch {NEW}' DEBUG; ls",
    f"PROMPT_COMMAND='touch {NEW}' bash -ic ls",
    f"BASH_ENV=script.sh bash -c ls; touch {NEW}",
    f"coproc touch {NEW}; ls",
    f"git init -q {NEW}",
    "mkdir -p .git && echo '../evil' > .git/commondir; git status",
    f"ln -s /etc/passwd {NEW}; cat {NEW}",
    f"ln file {NEW}",
    "ln file $TMPDIR/x && chmod 777 $TMPDIR/x",
    "ln -s $PWD/file $TMPDIR/x && echo y > $TMPDIR/x",
    "cp -r . $TMPDIR/c && cd $TMPDIR/c && chmod -R 777 . && touch file && rm -rf .",
    "exec 3<file; chmod 777 /proc/self/fd/3",
    "exec 3<file; echo x > /proc/self/fd/3",
    "exec 3<file; touch /dev/fd/3",
    "cat < /dev/tcp/127.0.0.1/$TCP",
    "exec 3<>/dev/tcp/127.0.0.1/$TCP; head -c1 <&3",
    "kill -9 $VICTIM",
    "kill -STOP $VICTIM",
    "renice 19 -p $VICTIM",
    "prlimit --pid $VICTIM --fsize=0",
    "taskset -p 1 $VICTIM",
    "ionice -c3 -p $VICTIM",
    "echo 1000 > /proc/$VICTIM/oom_score_adj",
    "choom -p $VICTIM -n 1000",
    "flock file chmod 600 file",
    "chattr +A file; chattr +d sub",
    "cd $OUT && touch secret; > secret",
    "cat $OUT/secret; touch $OUT/secret",
    "cd ..; ls; rm -rf root outside home",
    f"mkfifo {NEW}; mknod {NEW} p",
    "python3 -c 'import os; os.open(\"file\", os.O_TRUNC)'",
    "python3 -c 'import os; os.open(\"file\", os.O_TRUNC | 3)'",
    f'python3 -c \'open("{NEW}", "w")\'',
    f"perl -e 'open F, \">{NEW}\"'",
    f'node -e \'require("fs").writeFileSync("{NEW}", "")\'',
    "truncate -s 0 file; fallocate -l 9 file; dd if=/dev/zero of=file count=1",
    "shred file; sed -i s/t/x/ file; tee file < /dev/null",
    f"echo x > /tmp/{NEW}; echo x > /var/tmp/{NEW}; echo x > /dev/shm/{NEW}; echo x > ~/{NEW}",
)
"""What once ran unasked and changed something, or is of its kind."""

_PATHS = (
    *("file", "./file", '"file"', "fi'l'e", "f?le", "f*", "sub/inner", "sub", ".", "*", "link", "out", "out/secret"),
    *("script.sh", "./script.sh", "$OUT/secret", '"$OUT"', "$PWD/file", "hard", ".git/config", ".git/index", "a\\ b"),
    *(
        NEW,
        f"sub/{NEW}",
        f"$OUT/{NEW}",
        f"/tmp/{NEW}",
        f"/var/tmp/{NEW}",
        f"/dev/shm/{NEW}",
        f"~/{NEW}",
        f"$HOME/{NEW}",
    ),
    *(
        "$TMPDIR/t",
        "$TMPDIR",
        "/dev/null",
        "/proc/self/fd/3",
        "/dev/fd/3",
        "../outside/script.sh",
        "../outside/secret",
        "-",
    ),
)
_READS = (
    *("ls -la", "cat", "head -3", "wc -l", "stat", "grep -rn text", "find", "sort", "uniq", "cut -c1", "file", "diff"),
    *("jq .", "awk 1", "xxd", "od -c", "realpath", "readlink", "test -f", "[ -f", "du", "git status", "git diff"),
    *(
        "git log -p",
        "git show",
        "git ls-files",
        "git blame",
        "git grep text",
        "echo",
        "printf '%s'",
        "true",
        "cd",
        "pwd",
    ),
    *("find . -exec cat {} +", "find . -delete", "find . -fprintf", "sort -o", "uniq file", "git diff --output", "tac"),
)
_WRITES = (
    *(
        "touch",
        "rm -rf",
        "mv file",
        "cp file",
        "ln file",
        "ln -s file",
        "chmod 777",
        "chmod -R a+w",
        "chown 1:1",
        "chgrp 1",
    ),
    *(
        "mkdir",
        "rmdir",
        "truncate -s 1",
        "dd if=/dev/zero count=1 of=file;",
        "tee",
        "sed -i s/t/u/",
        "mkfifo",
        "install",
    ),
    *("touch -d @1", "touch -a", "unlink", "shred", "fallocate -l 4", "patch", "git add", "git commit -am x", "git gc"),
    *(
        "git config a.b c",
        "git checkout -f",
        "git stash",
        "git reset --hard",
        "git clean -fdx",
        "git tag t",
        "git init",
    ),
    *(
        "tar cf",
        "gzip -f",
        "split",
        "cpio -o",
        "rsync -a file",
        "mktemp -p",
        "perl -pi -e s/t/u/",
        "flock",
        "exec >",
        "sync",
    ),
    *("kill -9 $VICTIM;", "renice 5 $VICTIM;", "chattr +A", "setfattr -n user.x -v 1", "setfacl -m u:1:rwx", "mount"),
)
_REDIRECTS = (">", ">>", ">|", "&>", "&>>", "<>", "3<>", "2>", ">&", "<", "1>", "{fd}>")
_JOINS = (";", "&&", "||", "|", "\n", "&", "|&", "; ;", "\r\n", "#\n", "==\n", ";:;")
_MUTATIONS = (
    "\\\n",
    "\r",
    "#",
    "\\",
    "'",
    '"',
    "$",
    "`",
    "(",
    ")",
    "{",
    "}",
    ";",
    "\n",
    " ",
    "\t",
    ">",
    "[",
    "]",
    "=",
    "é",
    "\x01",
)
_STATEMENTS = (
    *(
        "for f in {w}; do {c}; done",
        "if {c}; then {c}; fi",
        "( {c} )",
        "{{ {c}; }}",
        "f() {{ {c}; }}; f",
        "! {c}",
        "case x in x) {c};; esac",
    ),
    *("echo $({c})", "echo `{c}`", "cat <({c})", "{c} > >({c})", "cat <<E\n$({c})\nE", "cat <<< $({c})", "eval '{c}'"),
    *(
        "bash -c '{c}'",
        "sh -c '{c}'",
        "echo '{c}' | bash",
        "xargs -n1 <<< '{c}'",
        "env {c}",
        "timeout 1 {c}",
        "nohup {c}",
    ),
    *(
        "trap '{c}' EXIT",
        "coproc {c}",
        "[[ 'a[$({c})]' -eq 1 ]]",
        "X='a[$({c})]'; (( X ))",
        "A=1 {c}",
        "command {c}",
        "exec {c}",
    ),
    *(
        "find . -maxdepth 0 -exec {c} ';'",
        "awk 'BEGIN{{system(\"{c}\")}}'",
        "setsid {c}",
        "( {c} & )",
        "cd {w} && {c}",
        "time {c}",
    ),
)
_PYTHON = (
    *(
        "os.open(p, {flags})",
        "os.open(p, {mode} | 0o1000)",
        "raw(2, p.encode(), {mode} | 0o1000, 0)",
        "os.chmod(p, 0o777)",
        "os.chown(p, 1, 1)",
        "os.utime(p, (1, 1))",
        "os.truncate(p, 0)",
        "os.rename(p, q)",
    ),
    *(
        "os.unlink(p)",
        "os.link(p, q)",
        "os.symlink(p, q)",
        "os.mkdir(q)",
        "os.rmdir(p)",
        "os.mkfifo(q)",
        "os.mknod(q)",
        "os.replace(q, p)",
    ),
    "os.chmod('/proc/self/fd/%d' % os.open(p, 0o10000000), 0o777)",
    *(
        "os.setxattr(p, 'user.x', b'1')",
        "os.removexattr(p, 'user.kept')",
        "os.fchmod(os.open(p, 0), 0o777)",
        "os.ftruncate(os.open(p, 0), 0)",
    ),
    *(
        "os.utime(os.open(p, 0), (1, 1))",
        "os.setxattr(os.open(p, 0), 'user.x', b'1')",
        "os.open('.', 0o20200001, 0o600)",
    ),
    *(
        "fcntl.ioctl(os.open(p, 0), {control}, struct.pack('Q', 64))",
        "fcntl.fcntl(os.open(p, 0), {command}, {small})",
        "fcntl.flock(os.open(p, 0), 2)",
    ),
    *(
        "mmap.mmap(os.open(p, 0), 4, mmap.MAP_SHARED, mmap.PROT_WRITE | mmap.PROT_READ)",
        "os.posix_fallocate(os.open(p, 0), 0, 9)",
    ),
    *(
        "socket.socket({family}, {kind})",
        "socket.create_connection(('127.0.0.1', int(env['TCP'])))",
        "s = socket.socket(socket.AF_UNIX); s.connect(env['OUT'] + '/socket')",
    ),
    *(
        "os.kill(v, {signal})",
        "os.setpriority(0, v, 10)",
        "os.sched_setaffinity(v, [0])",
        "resource.prlimit(v, resource.RLIMIT_FSIZE, (0, 0))",
    ),
    *(
        "signal.pidfd_send_signal(os.pidfd_open(v), {signal})",
        "raw(101, 16, v, 0, 0)",
        "raw(310, v, 0, 0, 0, 0, 0)",
        "raw(31, int(env['SHM']), 0, 0)",
    ),
    *(
        "raw({number}, p.encode(), {small}, {small}, {small}, {small}, {small})",
        "raw({number}, os.open(p, 0), {small}, {small}, {small}, {small})",
    ),
    *(
        "raw({number}, -100, p.encode(), {small}, {small}, {small}, {small})",
        "raw({number}, p.encode(), q.encode(), {small}, {small}, {small})",
    ),
)
# fmt: off
_LOCAL_CALLS = frozenset((
    *range(13, 16), *range(29, 32), *range(34, 36), *range(56, 63), *range(64, 72), *range(127, 131),
    *range(141, 143), *range(164, 174), *range(175, 177), *range(202, 204), *range(219, 221), *range(230, 232),
    *range(246, 248), *range(270, 272), *range(313, 315), *range(322, 324), *range(440, 442), *range(448, 450),
    23, 39, 101, 144, 154, 160, 162, 200, 227, 234, 251, 256, 279, 281, 297, 302, 305, 320, 424, 435, 456,
))
# fmt: on
"""What ends or stops the program itself, waits, or could hurt the machine if a filter failed: tried by name only."""
_SETTING_CALLS = (90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466, 469)
_MAKING_CALLS = (2, 76, 77, 82, 83, 84, 85, 86, 87, 88, 133, 257, 258, 259, 263, 264, 265, 266, 285, 316, 437)
_HEAD = (
    "import ctypes, fcntl, mmap, os, random, resource, signal, socket, struct\\n"
    'env = os.environ\\nv = int(env["VICTIM"])'
)


class Lines:
    """An endless source of command lines; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> str:
        """Return one line."""
        kinds: tuple[tuple[int, Callable[[], str]], ...] = (
            (45, self._line),
            (15, lambda: self._mutated(self._line())),
            (10, lambda: self._random.choice(BYPASSES)),
            (15, lambda: self._mutated(self._random.choice(BYPASSES))),
            (15, self._python),
        )
        make = self._random.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]
        return make().replace("\0", "")

    def _line(self) -> str:
        parts = [self._statement(2)]
        while self._random.random() < 0.45 and len(parts) < 8:
            parts += [self._random.choice(_JOINS), self._statement(2)]
        return " ".join(parts)

    def _statement(self, depth: int) -> str:
        if depth == 0 or self._random.random() < 0.6:
            return self._simple()
        form = self._random.choice(_STATEMENTS)
        made = form.replace("{{", "\x02").replace("}}", "\x03")
        while "{c}" in made:
            made = made.replace("{c}", self._statement(depth - 1), 1)
        while "{w}" in made:
            made = made.replace("{w}", self._random.choice(_PATHS), 1)
        return made.replace("\x02", "{").replace("\x03", "}")

    def _simple(self) -> str:
        program = self._random.choice(_READS if self._random.random() < 0.6 else _WRITES)
        parts = [program, *self._random.choices(_PATHS, k=self._random.randint(0, 3))]
        if program.startswith("["):
            parts.append("]")
        if self._random.random() < 0.25:
            parts += [self._random.choice(_REDIRECTS), self._random.choice(_PATHS)]
        return " ".join(parts)

    def _mutated(self, line: str) -> str:
        for _ in range(self._random.randint(1, 3)):
            at = self._random.randint(0, len(line))
            match self._random.randint(0, 3):
                case 0:
                    line = line[:at] + self._random.choice(_MUTATIONS) + line[at:]
                case 1:
                    line = line[:at] + line[at + 1 :]
                case 2:
                    end = at + self._random.randint(1, 12)
                    line = line[:end] + line[at:]
                case _:
                    line = line[:at] + self._random.choice(_JOINS) + self._simple() + " " + line[at:]
        return line

    def _python(self) -> str:
        """Write a program of several system calls, each of which may fail."""
        steps = [_HEAD, "raw = ctypes.CDLL(None, use_errno=True).syscall"]
        for _ in range(self._random.randint(1, 6)):
            path, other = self._random.choices(("file", "sub/inner", "sub", ".", "hard", "out/secret", NEW), k=2)
            filled = self._random.choice(_PYTHON)
            while "{" in filled:
                head, _, rest = filled.partition("{")
                name, _, tail = rest.partition("}")
                filled = f"{head}{self._number(name)}{tail}"
            steps += [f'p, q = "{path}", "{other}"', "try:", f"    {filled}"]
            steps += ["except Exception as error:", "    print(error)"]
        body = "\\n".join(steps).replace("'", '"')
        return f"\"$PY\" -I -S -c $'{body}'"

    def _number(self, name: str) -> int:
        pick = self._random.choice
        match name:
            case "flags":
                return pick((0, 1, 2, 3)) | pick((0, 0o1000)) | pick((0, 0o100, 0o2000, 0o10000000, 0o20200000))
            case "mode":
                return pick((0, 0, 1, 2, 3))
            case "control":
                known = (0x40086602, 0x401C5820, 0x40049409, 0x5412, 0x40087602, 0x50009401, 0x8901)
                return pick((*known, self._random.getrandbits(32)))
            case "command":
                return pick((1, 2, 4, 6, 8, 10, 15, 1024, 1026, 1031, 1033))
            case "family":
                return pick((1, 2, 10, 16, 17, 38, 40))
            case "kind":
                return pick((1, 2, 3, 5))
            case "signal":
                return pick((0, 9, 15, 19))
            case "number":
                chosen = pick((pick(_SETTING_CALLS), pick(_MAKING_CALLS), self._random.randint(0, 470)))
                return 90 if chosen in _LOCAL_CALLS else chosen
            case _:
                return pick((-1, 0, 1, 2, 3, 64, 511, 0o777, 4096, -100, self._random.getrandbits(12)))
