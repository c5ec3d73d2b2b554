"""Answers that must match a JSON Schema: reads the schema from a file and validates the answer."""

from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.core.errors import ConfigError, ErrorInfo
from treadle.core.json import BadJson, read_json

SCHEMA_BYTES_MAX = 1_048_576


def read_schema(path: str) -> msgspec.Raw:
    """Read a schema from a file.

    Raises: ConfigError, naming the file and what is wrong with it.
    """
    import jsonschema_rs

    try:
        data = Path(path).read_bytes()
        value: Any = read_json(data.decode())
    except OSError as error:
        raise ConfigError(f"{path} can not be read: {error.strerror}", param="--schema") from None
    except (BadJson, UnicodeError) as error:
        raise ConfigError(f"{path} is not JSON: {error}", param="--schema") from None
    if not isinstance(value, dict) or len(data) > SCHEMA_BYTES_MAX:
        raise ConfigError(f"{path} is no JSON Schema: a schema of an answer is an object", param="--schema")
    try:
        jsonschema_rs.validator_for(cast("dict[str, Any]", value))
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ConfigError(f"{path} is no JSON Schema: {str(error).splitlines()[0]}", param="--schema") from None
    return msgspec.Raw(data)


def fault_of(text: str, schema: msgspec.Raw) -> ErrorInfo | None:
    """Return what is wrong with an answer; nothing when it follows the schema."""
    import jsonschema_rs

    try:
        value = read_json(text.strip())
    except (BadJson, UnicodeError) as error:
        return ErrorInfo(code="schema_mismatch", message=f"the answer is not JSON: {error}")
    faults = list(jsonschema_rs.validator_for(read_json(bytes(schema).decode())).iter_errors(value))
    if not faults:
        return None
    where = "/".join(str(step) for step in faults[0].instance_path)
    first = faults[0].message.splitlines()[0]
    return ErrorInfo(code="schema_mismatch", message=f"the answer does not follow the schema at /{where}: {first}")
