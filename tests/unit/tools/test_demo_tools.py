import pytest

from treadle.core.json import read_json
from treadle.tools.demo_tools import DEMO_TOOLS, add, convert, get_weather

from .fakes import outcome


async def test_the_weather_is_the_same_every_time() -> None:
    """The demo can be shown, tested and replayed: a city has one weather, however it is spelled."""
    result = await outcome(get_weather, '{"city":"Paris"}')
    assert result.text == '{"city":"Paris","temperature_c":17,"sky":"clear sky","wind_kmh":17}'
    again = await outcome(get_weather, '{"city":" paris "}')
    assert read_json(again.text) == {**read_json(result.text), "city": "paris"}


@pytest.mark.parametrize(("arguments", "text"), [('{"a":2,"b":3}', "5"), ('{"a":0.5,"b":1}', "1.5")])
async def test_numbers_are_added(arguments: str, text: str) -> None:
    """Whole sums are written as whole numbers."""
    assert (await outcome(add, arguments)).text == text


@pytest.mark.parametrize(
    ("value", "from_unit", "to_unit", "result"),
    [
        (100, "celsius", "fahrenheit", "212.0"),
        (32, "fahrenheit", "celsius", "0.0"),
        (0, "kelvin", "celsius", "-273.15"),
        (5, "kilometres", "miles", "3.106856"),
        (1, "pounds", "grams", "453.59237"),
    ],
)
async def test_units_are_converted(value: int, from_unit: str, to_unit: str, result: str) -> None:
    """Temperatures have offsets, the others only factors."""
    arguments = f'{{"value":{value},"from_unit":"{from_unit}","to_unit":"{to_unit}"}}'
    assert (await outcome(convert, arguments)).text == result


async def test_what_cannot_be_converted_is_an_error_the_model_can_read() -> None:
    """Incompatible and unknown units have their own codes."""
    wrong = await outcome(convert, '{"value":1,"from_unit":"metres","to_unit":"kelvin"}')
    assert (wrong.rc, wrong.text) == (
        "failed",
        '{"error":{"code":"incompatible_units","message":"metres cannot be converted to kelvin."}}',
    )
    assert (await outcome(convert, '{"value":1,"from_unit":"parsec","to_unit":"metres"}')).rc == "invalid_arguments"


def test_demo_tools_are_harmless() -> None:
    """They read, run in parallel, need no approval, reach no network and start nothing."""
    for tool in DEMO_TOOLS:
        assert (tool.policy.effect, tool.policy.parallel, tool.policy.needs_approval) == ("read", True, False)
        assert not tool.policy.exec
        assert not tool.policy.egress
