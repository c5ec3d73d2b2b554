"""The faults of `make mutants`: each is a module that Python takes, and differs from the original in one place."""

import ast

from mutants.operators import mutants

SOURCE = '''"""Words, not code: 1 == 1."""

GREETING = "grüß"


def pick(values: list[int], *, is_last: bool = False) -> int:
    """Return one."""
    if not values:
        raise ValueError("none of 3")
    größe = len(values) - 1
    for value in values:
        if value > 3 and not is_last:
            continue
        print(value)
    return max(values) if is_last else größe
'''


def test_every_fault_is_a_program_that_differs() -> None:
    """The parser takes each, and no two are the same."""
    found = mutants(SOURCE)
    assert len({mutant.text for mutant in found}) == len(found) > 10
    for mutant in found:
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(SOURCE))


def test_words_annotations_and_complaints_stay() -> None:
    """A fault in a docstring, a type or a message would be noticed by nobody, and needs not be."""
    for mutant in mutants(SOURCE):
        assert "1 == 1" in mutant.text
        assert 'ValueError("none of 3")' in mutant.text
        assert "values: list[int]" in mutant.text


def test_places_behind_wide_letters_are_found() -> None:
    """The parser counts bytes; the text is cut by characters."""
    faults = [mutant.what for mutant in mutants(SOURCE)]
    assert "max  ->  min" in faults
    assert "len(values) - 1  ->  (len(values) + 1)" in faults
    assert "continue  ->  break" in faults
