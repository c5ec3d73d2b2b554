"""What is known of programs, as tables: which only read, which run others, which reach out of the workspace."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


READERS = words(
    "basename cat cmp comm cut df diff dirname du echo egrep expr false fgrep file find fold grep head hexdump "
    "id jq ls md5sum nl nproc od paste pwd readlink realpath rg sha1sum sha256sum sort stat tail test tr tree "
    "true type uname uniq wc whereis which [ printf"
)
"""Programs that change nothing, unless a flag below makes them."""

WRITING_FLAGS: dict[str, tuple[str, ...]] = {
    "file": ("-C", "--compile"),
    "find": ("-delete", "-exec", "-fls", "-fprint", "-ok"),
    "printf": ("-v",),
    "rg": ("--hostname-bin", "--pre", "--search-zip", "-z"),
    "sort": ("--compress-program", "--output", "-o"),
    "tree": ("--output", "-o"),
    "uniq": (),
}
"""Beginnings of the flags with which a reader writes, or runs another program."""

READING_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": words("blame cat-file describe diff log ls-files ls-tree rev-parse shortlog show status"),
    "cargo": frozenset({"--version"}),
    "go": frozenset({"version"}),
    "node": frozenset({"--version", "-v"}),
    "npm": frozenset({"--version", "-v"}),
    "pip": frozenset({"--version"}),
    "python": frozenset({"--version", "-V"}),
    "python3": frozenset({"--version", "-V"}),
}
"""Programs of which some subcommands only read."""

GIT_WRITING_FLAGS = ("--ext-diff", "--filters", "--output", "--open-files-in-pager", "--textconv", "-O")

RUNNERS = words(
    ". bash builtin chroot command dash doas env eval exec fish flatpak ksh nice nohup parallel screen setsid "
    "sh source ssh stdbuf strace sudo su time timeout tmux unshare watch xargs zsh"
)
"""Programs whose arguments are another command: what was agreed to would not be what runs."""

EXEC_FLAGS = ("-exec", "-execdir", "-ok", "-okdir")

STATEFUL = words(
    "alias cd coproc declare dirs enable export getopts hash let local mapfile popd pushd read readarray "
    "readonly set shopt trap typeset ulimit umask unalias unset"
)
"""Builtins that change what the commands after them mean."""

FAR_REACHING: dict[str, frozenset[str]] = {
    "apt": frozenset({"install", "remove", "upgrade"}),
    "apt-get": frozenset({"install", "remove", "upgrade"}),
    "brew": frozenset({"install"}),
    "cargo": frozenset({"install", "publish"}),
    "curl": frozenset(),
    "docker": frozenset(),
    "gem": frozenset({"install"}),
    "git": frozenset({"clone", "fetch", "pull", "push"}),
    "kubectl": frozenset(),
    "npm": frozenset({"ci", "i", "install", "publish"}),
    "pip": frozenset({"install"}),
    "pip3": frozenset({"install"}),
    "pnpm": frozenset({"add", "install"}),
    "rsync": frozenset(),
    "scp": frozenset(),
    "uv": frozenset({"add", "pip", "sync"}),
    "wget": frozenset(),
    "yarn": frozenset({"add", "install"}),
}
"""Programs, with the subcommands that count (none: all), that reach the network or the machine: for a session only."""


def only_reads(words: tuple[str, ...]) -> bool:
    """Tell whether a simple command changes nothing."""
    if not words:
        return False
    program, rest = words[0], words[1:]
    if program in READING_SUBCOMMANDS:
        if not rest or rest[0] not in READING_SUBCOMMANDS[program]:
            return False
        is_version = rest[0].startswith("-")
        return len(rest) == 1 if is_version else not _has_flag(rest, GIT_WRITING_FLAGS)
    if program == "uniq" and sum(not word.startswith("-") for word in rest) > 1:
        return False  # its second file is written
    return program in READERS and not _has_flag(rest, WRITING_FLAGS.get(program, ()))


def has_writing_flags(program: str) -> bool:
    """Tell whether a program that reads has flags that make it write."""
    return program in WRITING_FLAGS or program in READING_SUBCOMMANDS


def _has_flag(words: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    return any(_is_flag(word, flag) for word in words for flag in flags)


def _is_flag(word: str, flag: str) -> bool:
    """Match a flag as its program would: also with its value behind it, shortened, or among other letters."""
    if word.startswith(flag):
        return True
    if flag.startswith("--"):
        name = word.partition("=")[0]
        return name.startswith("--") and len(name) > 3 and flag.startswith(name)
    is_letters = len(flag) == 2 and word.startswith("-") and not word.startswith("--")
    return is_letters and flag[1] in word[1:]


def reaches_far(words: tuple[str, ...]) -> bool:
    """Tell whether a simple command reaches the network or changes the machine."""
    subcommands = FAR_REACHING.get(words[0]) if words else None
    return subcommands is not None and (not subcommands or any(word in subcommands for word in words[1:]))
