"""The script for zsh, with a line of explanation beside everything it offers."""

from collections.abc import Iterable

from treadle.cli.command_tree import ArgumentPlace, CommandFlag

_SCRIPT = """\
#compdef treadle
# Completion of treadle for zsh: treadle completion zsh > a folder of $fpath, as _treadle; or source <(…) after compinit
_treadle() {{
  local place=treadle prev="${{words[CURRENT-1]}}" i
  local -a found
  for ((i = 2; i < CURRENT; i++)); do
    case "$place ${{words[i]}}" in
      ({places}) place="$place ${{words[i]}}" ;;
      ({skipped}) ((i++)) ;;
    esac
  done
  case "$place $prev" in
{values}
  esac
  case "$place" in
{words}
  esac
}}
if [ "$funcstack[1]" = "_treadle" ]; then _treadle "$@"; else compdef _treadle treadle; fi
"""


def write_zsh(places: Iterable[ArgumentPlace]) -> str:
    """Write the script."""
    listed = list(places)
    flags = [flag for place in listed for flag in place.flags if flag.kind != "nothing"]
    skipped = sorted({name for flag in flags for name in flag.names})
    return _SCRIPT.format(
        places="|".join(quoted(place.path) for place in listed[1:]),
        skipped="|".join(f"*' {name}'" for name in skipped),
        values="\n".join(f"    {line}" for place in listed for line in _values(place)),
        words="\n".join(_words(place) for place in listed),
    )


def quoted(text: str) -> str:
    """Quote a text for the shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _values(place: ArgumentPlace) -> list[str]:
    return [_value(place, flag) for flag in place.flags if flag.kind != "nothing"]


def _value(place: ArgumentPlace, flag: CommandFlag) -> str:
    spelled = "|".join(quoted(f"{place.path} {name}") for name in flag.names)
    offers = {"choice": f"compadd -- {' '.join(flag.choices)}", "file": "_files", "text": "_message value"}
    return f"({spelled}) {offers[flag.kind]}; return ;;"


def _words(place: ArgumentPlace) -> str:
    flags = " ".join(_described(name, flag.summary) for flag in place.flags for name in flag.names)
    words = " ".join(_described(word.text, word.summary) for word in place.words)
    lines = [f"    ({quoted(place.path)})", f"      if [[ ${{words[CURRENT]}} == -* ]]; then found=({flags})"]
    lines.append(f"      else found=({words}); fi")
    lines.append("      (( $#found )) && _describe treadle found")
    if place.takes_files:
        lines.append("      [[ ${words[CURRENT]} == -* ]] || _files")
    return "\n".join([*lines, "      ;;"])


def _described(text: str, summary: str) -> str:
    return quoted(f"{text}:{summary}" if summary else text)
