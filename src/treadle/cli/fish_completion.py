"""The script for fish, with a line of explanation beside everything it offers."""

from collections.abc import Iterable

from treadle.cli.command_tree import ArgumentPlace, CommandFlag

_HEAD = """\
# Completion of treadle for fish: treadle completion fish > ~/.config/fish/completions/treadle.fish
set -g __treadle_places {places}
function __treadle_at
    set -l place treadle
    for word in (commandline -opc)[2..-1]
        contains -- "$place $word" $__treadle_places; and set place "$place $word"
    end
    test "$place" = "$argv"
end
complete -c treadle -f
"""


def write_fish(places: Iterable[ArgumentPlace]) -> str:
    """Write the script."""
    listed = list(places)
    lines = [_HEAD.format(places=" ".join(quoted(place.path) for place in listed[1:]))]
    for place in listed:
        at = f"complete -c treadle -n {quoted(f'__treadle_at {place.path}')}"
        for word in place.words:
            about = f" -d {quoted(word.summary)}" if word.summary else ""
            lines.append(f"{at} -a {quoted(word.text)}{about}\n")
        if place.takes_files:
            lines.append(f"{at} -F\n")
        lines += [f"{at} {_flag(flag)} -d {quoted(flag.summary)}\n" for flag in place.flags]
    return "".join(lines)


def quoted(text: str) -> str:
    """Quote a text for the shell."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _flag(flag: CommandFlag) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names]
    match flag.kind:
        case "nothing":
            pass
        case "choice":
            names.append(f"-x -a {quoted(' '.join(flag.choices))}")
        case "file":
            names.append("-r -F")
        case "text":
            names.append("-x")
    return " ".join(names)
