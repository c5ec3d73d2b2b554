"""A tool guest in Python, as a component: every call gets a fresh instance. Its world is in treadle_tool.wit.

pip install componentize-py
treadle wasm build words.py
"""

import json

import wit_world
from componentize_py_types import Err
from wit_world.imports import host

TOOLS = [
    {
        "name": "count_words",
        "description": "Count the words of a text.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
            "additionalProperties": False,
        },
    }
]


class WitWorld(wit_world.WitWorld):
    """The component; what it exports is what the world wants."""

    def describe(self) -> str:
        """Return the tools as JSON."""
        return json.dumps(TOOLS)

    def call(self, name: str, arguments: str) -> str:
        """Run a tool; an `Err` is the error that the model reads."""
        if name != "count_words":
            raise Err(f"There is no tool {name}.")
        words = len(json.loads(arguments)["text"].split())
        host.log(f"counted {words} words")
        return json.dumps({"words": words})
