"""The table of keys: what is pressed, when it applies, what it does. Help and docs are generated from it."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec
from prompt_toolkit.filters import Condition, Filter, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

When = Literal["always", "typing", "empty", "asking", "idle"]
"""`typing` is whenever no question stands there; `empty` is typing with nothing typed, `idle` with no turn."""


class KeyPress(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. `sequences` are keys pressed one after the other, as prompt_toolkit spells them."""

    sequences: tuple[tuple[str, ...], ...]
    shown: str
    does: str
    action: str
    when: When = "typing"


KEYS: tuple[KeyPress, ...] = (
    KeyPress(sequences=(("enter",),), shown="Enter", does="send; during a turn: send after it", action="enter"),
    KeyPress(
        sequences=(("escape", "enter"), ("c-j",)),
        shown="Alt-Enter, Ctrl-J, \\ Enter",
        does="start a new line",
        action="newline",
    ),
    KeyPress(
        sequences=(("c-c",),),
        shown="Ctrl-C",
        does="stop the turn; else clear the line; twice on an empty line: leave",
        action="interrupt",
        when="always",
    ),
    KeyPress(sequences=(("escape",),), shown="Esc", does="stop the turn", action="escape", when="always"),
    KeyPress(
        sequences=(("escape", "escape"),),
        shown="Esc Esc",
        does="edit an earlier message, in a fork",
        action="earlier",
        when="idle",
    ),
    KeyPress(sequences=(("c-d",),), shown="Ctrl-D", does="leave, on an empty line", action="leave", when="empty"),
    KeyPress(sequences=(("tab",),), shown="Tab", does="complete /command, @file, #earlier prompt", action="complete"),
    KeyPress(
        sequences=(("s-tab",),),
        shown="Shift-Tab",
        does="next policy: plan, ask, auto-edit",
        action="policy",
        when="always",
    ),
    KeyPress(
        sequences=(("c-o",),), shown="Ctrl-O", does="show more of a folded result", action="unfold", when="always"
    ),
    KeyPress(sequences=(("c-g",),), shown="Ctrl-G", does="write in $EDITOR", action="editor"),
    KeyPress(sequences=(("c-l",),), shown="Ctrl-L", does="draw the screen again", action="redraw", when="always"),
    KeyPress(sequences=(("c-z",),), shown="Ctrl-Z", does="suspend; fg comes back", action="suspend", when="always"),
    KeyPress(sequences=(("<any>",),), shown="y s p d e n N", does="answer a question", action="answer", when="asking"),
    KeyPress(sequences=(("<bracketed-paste>",),), shown="paste", does="over 20 lines it is folded", action="paste"),
)
BUILT_IN = (("Ctrl-R", "search the history"), ("Up, Down", "history, at the edge of the text"))
"""Keys that the editor itself knows."""


class Conditions(Protocol):
    """The states that keys depend on."""

    @property
    def is_asking(self) -> bool:
        """Return whether a question waits for a key."""
        ...

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is typed."""
        ...

    @property
    def is_idle(self) -> bool:
        """Return whether no turn is running."""
        ...


def bind(conditions: Conditions, actions: Mapping[str, Callable[[KeyPressEvent], None]]) -> KeyBindings:
    """Return the bindings of the table."""
    asking = Condition(lambda: conditions.is_asking)
    filters: dict[When, Filter] = {
        "always": Condition(lambda: True),
        "typing": ~asking,
        "empty": ~asking & Condition(lambda: conditions.is_empty),
        "asking": asking,
        "idle": ~asking & Condition(lambda: conditions.is_idle),
    }
    bindings = KeyBindings()
    for key in KEYS:
        for sequence in key.sequences:
            # While the history is searched, keys belong to the search.
            bindings.add(*sequence, filter=filters[key.when] & ~is_searching)(actions[key.action])
    return bindings


def help_rows() -> list[tuple[str, str]]:
    """Return the keys for a person to read, each with what it does."""
    return [(key.shown, key.does) for key in KEYS] + list(BUILT_IN)
