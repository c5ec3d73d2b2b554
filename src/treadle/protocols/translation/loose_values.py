"""Values out of what a provider wrote and Treadle does not act on: whatever is not there or is odd is empty."""

from typing import Any, cast

import msgspec

from treadle.core.json import BadJson, read_json

Fields = dict[str, Any]


def value_of(raw: msgspec.Raw | None) -> Any:
    """Return the value of a JSON text, None where it is none."""
    try:
        return None if raw is None else read_json(bytes(raw))
    except BadJson:
        return None


def object_in(value: Any) -> Fields:
    """Return an object, or an empty one."""
    return cast("Fields", value) if isinstance(value, dict) else {}


def list_in(value: Any) -> list[Any]:
    """Return a list, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_in(value: Any) -> str:
    """Return a text, or an empty one."""
    return value if isinstance(value, str) else ""


def image_url(result: str, form: str) -> str:
    """Return a generated image as a URL: base64 of that form, PNG where none is named, unless it is a URL already."""
    return result if result.startswith("data:") else f"data:image/{form or 'png'};base64,{result}"
