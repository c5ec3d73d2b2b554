"""Tables of known programs: which are tried read-only, which run others, which act outside the workspace.

Nothing here prevents writing: the sandbox does. A program in the wrong table costs a second call, no more.
"""


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


READERS = words(
    "awk basename cat cd cmp column comm cut date df diff dirname du echo egrep expr false fgrep file find fold gawk "
    "grep head hexdump id jq ls md5sum nl nproc od paste printf pwd readlink realpath rev rg seq sha1sum sha256sum "
    "sort stat strings tac tail test tr tree true type uname uniq wc whereis which xxd ["
)
"""Programs that usually only read: a command line of these is first run read-only, without a question."""

READING_SUBCOMMANDS: dict[str, frozenset[str]] = {
    "git": words("blame cat-file describe diff grep log ls-files ls-tree rev-parse shortlog show status"),
    "cargo": frozenset({"--version"}),
    "go": frozenset({"version"}),
    "node": frozenset({"--version", "-v"}),
    "npm": frozenset({"--version", "-v"}),
    "pip": frozenset({"--version"}),
    "python": frozenset({"--version", "-V"}),
    "python3": frozenset({"--version", "-V"}),
}
"""Programs of which some subcommands usually only read."""

RUNNERS = words(
    ". bash bind builtin chroot command complete coproc dash doas env eval exec fish flatpak ksh mapfile nice nohup "
    "parallel readarray screen setsid sh source ssh stdbuf strace sudo su time timeout tmux trap unshare watch "
    "xargs zsh"
)
"""Programs that run a command given in their arguments; the analysis does not see that command."""

EXEC_FLAGS = ("-exec", "-execdir", "-ok", "-okdir")

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


def usually_reads(words: tuple[str, ...]) -> bool:
    """Return whether a simple command is usually run to read something."""
    if not words:
        return False
    subcommands = READING_SUBCOMMANDS.get(words[0])
    return words[0] in READERS if subcommands is None else len(words) > 1 and words[1] in subcommands


def leaves_workspace(words: tuple[str, ...]) -> bool:
    """Return whether a simple command reaches the network or changes the machine."""
    subcommands = FAR_REACHING.get(words[0]) if words else None
    return subcommands is not None and (not subcommands or any(word in subcommands for word in words[1:]))
