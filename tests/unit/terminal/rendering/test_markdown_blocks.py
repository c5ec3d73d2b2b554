"""Lines as blocks: each kind, nesting, and where one ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.terminal.rendering.markdown_blocks import (
    DEPTH_MAX,
    CodeBlock,
    Heading,
    HorizontalRule,
    List,
    Paragraph,
    Quote,
    Table,
    read_document,
)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", ()),
        ("one\ntwo\n\nthree", (Paragraph("one\ntwo"), Paragraph("three"))),
        ("# One #\n###### Six\n#no", (Heading(1, "One"), Heading(6, "Six"), Paragraph("#no"))),
        ("#\ntext", (Heading(1, ""), Paragraph("text"))),
        ("One\n===\nTwo\n---\n", (Heading(1, "One"), Heading(2, "Two"))),
        ("***\n - - -\n___", (HorizontalRule(), HorizontalRule(), HorizontalRule())),
        ("```py x\na\n  b\n```\nc", (CodeBlock("py", ("a", "  b")), Paragraph("c"))),
        ("~~~\n```\n~~~", (CodeBlock("", ("```",)),)),
        ("```\nopen", (CodeBlock("", ("open",)),)),
        ("    a\n\n    b\n\nc", (CodeBlock("", ("a", "", "b")), Paragraph("c"))),
        ("> a\n> b\nlazy\n\nc", (Quote((Paragraph("a\nb\nlazy"),)), Paragraph("c"))),
        ("> > a", (Quote((Quote((Paragraph("a"),)),)),)),
        ("- a\n- b", (List(((Paragraph("a"),), (Paragraph("b"),)), None),)),
        ("- a\n* b", (List(((Paragraph("a"),),), None), List(((Paragraph("b"),),), None))),
        ("3. a\n4. b", (List(((Paragraph("a"),), (Paragraph("b"),)), 3),)),
        ("1) a\nlazy", (List(((Paragraph("a\nlazy"),),), 1),)),
        ("- a\n\n  b\n\nc", (List(((Paragraph("a"), Paragraph("b")),), None), Paragraph("c"))),
        (
            "- a\n  - b\n    - c",
            (List(((Paragraph("a"), List(((Paragraph("b"), List(((Paragraph("c"),),), None)),), None)),), None),),
        ),
        (
            "1. a\n\n   ```\n   x\n   ```\n2. b",
            (List(((Paragraph("a"), CodeBlock("", ("x",))), (Paragraph("b"),)), 1),),
        ),
        ("-\n- b", (List(((), (Paragraph("b"),)), None),)),
        ("in 1986. was\n1986. a year", (Paragraph("in 1986. was\n1986. a year"),)),
        ("so:\n- a", (Paragraph("so:"), List(((Paragraph("a"),),), None))),
        ("- a\n---\nb", (List(((Paragraph("a"),),), None), HorizontalRule(), Paragraph("b"))),
        (
            "| a | b |\n|:-:|--:|\n| 1 | 2 |\n| 3 |\n\nx",
            (Table((("a", "b"), ("1", "2"), ("3", "")), ("centre", "right")), Paragraph("x")),
        ),
        ("a | b\n- | -\n1 \\| 2 | 3", (Table((("a", "b"), ("1 | 2", "3")), ("left", "left")),)),
        ("a | b\nno dashes", (Paragraph("a | b\nno dashes"),)),
        ("a | b\n---", (Heading(2, "a | b"),)),
        ("\ta", (CodeBlock("", ("a",)),)),
    ],
)
def test_each_block_is_read(text: str, blocks: tuple[object, ...]) -> None:
    """With what belongs to it, and nothing of its neighbours."""
    assert read_document(text) == blocks


@pytest.mark.parametrize("text", [">" * 5_000 + "a", "- " * 5_000 + "a", "1. " * 3_000 + "a", "> - " * 3_000])
def test_nesting_has_an_end(text: str) -> None:
    """What is deeper than anybody can see is text."""
    block, depth = read_document(text)[0], 0
    while isinstance(block, Quote | List):
        inner = block.blocks if isinstance(block, Quote) else block.items[0]
        if not inner:
            break
        block, depth = inner[0], depth + 1
    assert depth <= DEPTH_MAX


@given(st.text(alphabet="ab |:-#>*+1.)=_\n\t ", max_size=80))
def test_no_letter_is_lost(text: str) -> None:
    """Whatever blocks the marks make, letters stay, in their order."""
    assert [each for each in str(texts(read_document(text))) if each in "ab"] == [each for each in text if each in "ab"]


def texts(value: object) -> list[object]:
    """Return all texts of blocks."""
    match value:
        case str():
            return [value]
        case tuple():
            return [text for each in value for text in texts(each)]
        case Table():
            return texts(value.rows)
        case Heading() | Paragraph() | CodeBlock() | Quote() | List():
            return [text for name in value.__struct_fields__ for text in texts(getattr(value, name))]
        case _:
            return []
