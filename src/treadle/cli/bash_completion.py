"""The script for bash, which needs nothing but bash itself (3.2 or newer)."""

from collections.abc import Iterable

from treadle.cli.command_tree import ArgumentPlace

_SCRIPT = """\
# Completion of treadle for bash: source <(treadle completion bash)
_treadle() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" place=treadle words="" i
  if [ "$cur" = "=" ]; then cur=""; elif [ "$prev" = "=" ]; then prev="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$place ${{COMP_WORDS[i]}}" in
      {places}) place="$place ${{COMP_WORDS[i]}}" ;;
      *" "{skipped}) ((i++)) ;;
    esac
  done
  case "$place $prev" in
{values}
  esac
  case "$place" in
{words}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _treadle treadle
"""


def write_bash(places: Iterable[ArgumentPlace]) -> str:
    """Write the script."""
    listed = list(places)
    paths = "|".join(f'"{place.path}"' for place in listed[1:])
    flags = [flag for place in listed for flag in place.flags if flag.kind != "nothing"]
    skipped = sorted({name for flag in flags for name in flag.names})
    return _SCRIPT.format(
        places=paths,
        skipped='|*" "'.join(f'"{name}"' for name in skipped),
        values="\n".join(line for place in listed for line in _values(place)),
        words="\n".join(_words(place) for place in listed),
    )


def _values(place: ArgumentPlace) -> list[str]:
    """Say what comes behind a flag."""
    lines: list[str] = []
    for flag in place.flags:
        spelled = "|".join(f'"{place.path} {name}"' for name in flag.names)
        if flag.kind == "choice":
            found = f'COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$cur"))'
            lines.append(f"    {spelled}) {found}; return ;;")
        elif flag.kind in ("file", "text"):  # nothing is offered; bash itself then offers files
            lines.append(f"    {spelled}) COMPREPLY=(); return ;;")
    return lines


def _words(place: ArgumentPlace) -> str:
    """Offer flags to who began one, and words to all others."""
    flags = " ".join(name for flag in place.flags for name in flag.names)
    words = " ".join(word.text for word in place.words)
    begun = f'if [[ "$cur" == -* ]]; then words="{flags}"; else words="{words}"; fi'
    return f'    "{place.path}") {begun} ;;'
