"""The layout of the live part of the screen.

From top to bottom: the open block, the status of the run, queued input, the question, the editor, completions, and the
status line. Nothing has a border.
"""

from typing import Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.layout import BufferControl, ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from treadle.terminal.rendering.sanitize import ONE_FOR_ONE, one_line

EDITOR_ROWS_MAX = 10
MENU_ROWS_MAX = 8
RESERVED_ROWS = 5
STYLE = Style.from_dict({"status": "dim", "activity": "dim", "queued": "dim", "menu": "dim", "chosen": "reverse"})


class Visible(Processor):
    """Shows what is typed or pasted without obeying it; the text itself stays as it is."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Return one symbol for each character that a terminal would obey."""
        fragments: StyleAndTextTuples = [
            (fragment[0], fragment[1].translate(ONE_FOR_ONE)) for fragment in transformation_input.fragments
        ]
        return Transformation(fragments)


class VisibleRows(Protocol):
    """The contents of the live part."""

    def open_text(self) -> str:
        """Return the open block, with its colours."""
        ...

    def activity_text(self) -> str:
        """Return what is waited for."""
        ...

    def queued_text(self) -> str:
        """Return what is to be sent later."""
        ...

    def question_text(self) -> str:
        """Return the choices of the question that stands there."""
        ...

    def label(self) -> str:
        """Return what stands before the editor."""
        ...

    def status_text(self) -> str:
        """Return the status line."""
        ...


def make_layout(shown: VisibleRows, buffer: Buffer) -> Layout:
    """Return the layout around an editor."""
    search = SearchToolbar(ignore_case=True)
    control = BufferControl(
        buffer, search_buffer_control=search.control, preview_search=True, input_processors=[Visible()]
    )
    editor = Window(
        control,
        height=lambda: Dimension(min=1, max=EDITOR_ROWS_MAX),
        wrap_lines=True,
        dont_extend_height=True,
        get_line_prefix=lambda number, wrapped: shown.label() if not number and not wrapped else "  ",
    )
    rows = [
        _part(lambda: ANSI(shown.open_text()), lambda: bool(shown.open_text())),
        _part(lambda: [("class:activity", shown.activity_text())], lambda: bool(shown.activity_text())),
        _part(lambda: [("class:queued", shown.queued_text())], lambda: bool(shown.queued_text())),
        _part(lambda: shown.question_text(), lambda: bool(shown.question_text()), is_wrapped=True),
        editor,
        search,
        _part(lambda: menu_of(buffer), lambda: bool(menu_of(buffer))),
        _part(lambda: [("class:status", shown.status_text())], lambda: bool(shown.status_text())),
    ]
    return Layout(HSplit(rows), focused_element=editor)


def _part(text: "object", is_there: "object", *, is_wrapped: bool = False) -> ConditionalContainer:
    window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=is_wrapped)  # pyright: ignore[reportArgumentType]
    return ConditionalContainer(window, Condition(is_there))  # pyright: ignore[reportArgumentType]


def menu_of(buffer: Buffer) -> StyleAndTextTuples:
    """Return what Tab offers, a line each, around the one that is chosen."""
    state = buffer.complete_state
    if state is None or not state.completions:
        return []
    index = state.complete_index or 0
    first = max(0, min(index - MENU_ROWS_MAX // 2, len(state.completions) - MENU_ROWS_MAX))
    lines: StyleAndTextTuples = []
    for number, each in enumerate(state.completions[first : first + MENU_ROWS_MAX], first):
        style = "class:chosen" if number == state.complete_index else "class:menu"
        meta = f"  {one_line(each.display_meta_text)}" if each.display_meta_text else ""
        lines += [("", "\n")] if lines else []
        lines.append((style, f"  {each.display_text}{meta}"))
    return lines
