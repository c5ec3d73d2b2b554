"""Values that are remembered by the very object they were made of."""

from treadle.core.memoized import Memo


def test_the_same_object_is_worked_on_once():
    """However often it is asked for."""
    made: list[tuple[int, ...]] = []

    def add_up(numbers: tuple[int, ...]) -> int:
        made.append(numbers)
        return sum(numbers)

    memo, numbers = Memo(add_up), (1, 2, 3)
    assert [memo.of(numbers) for _ in range(3)] == [6, 6, 6]
    assert made == [numbers]


def test_an_equal_object_is_another_one():
    """Nothing is compared: what is made may hold on to its object."""
    memo = Memo[list[int], list[int]](lambda numbers: numbers)
    one, other = [1], [1]
    assert memo.of(one) is one
    assert memo.of(other) is other


def test_what_is_remembered_is_bounded_and_right_after_it_is_forgotten():
    """Also for an object that comes where another was: those that are remembered are held."""
    memo = Memo[list[int], int](sum, most=2)
    assert [memo.of([number]) for number in range(50)] == list(range(50))
    kept = [[number] for number in range(5)]
    assert [memo.of(each) for each in (*kept, *kept)] == [0, 1, 2, 3, 4] * 2


def test_no_more_than_so_many_are_remembered():
    """The one after the last makes all others be forgotten, and is remembered itself."""
    made: list[list[int]] = []
    memo = Memo[list[int], int](lambda thing: made.append(thing) or len(made), most=2)
    one, two, three = [1], [1], [1]
    assert [memo.of(thing) for thing in (one, two, one)] == [1, 2, 1]
    assert [memo.of(thing) for thing in (three, three, one, two)] == [3, 3, 4, 5]
