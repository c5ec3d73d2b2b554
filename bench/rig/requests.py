"""The bodies that are asked, in each protocol, without model and stream. Pure.

`TALK` is the request of the scenarios: six messages and two tools, 1.9 KB as chat; none of the messages is a call.
`CALLED` is as long and has one, with its result. `SHORT` is one word, where it is not the request that is measured.
"""

import json
from collections.abc import Mapping
from typing import Any

INSTRUCTIONS = (
    "You plan walks for visitors of a town. Ask the tools for the weather and for opening hours before you propose "
    "anything, never guess either. Propose at most three places, in the order in which they are best walked, and say "
    "for each how long it takes to get there on foot. Where somebody cannot walk far, say which way is the easiest. "
    "Answer in the language of the question, in short sentences."
)
QUESTION = "We are in Lisbon until the evening and would like to see something old. Will it stay dry?"
ANSWER = (
    "It stays dry until about five. Begin with the castle, then walk down through Alfama to the cathedral, which is "
    "ten minutes from there. The tile museum is good for the rain, and a bus goes there from the river."
)
WISH = "One of us cannot climb many stairs, and there is a small child with us. Is there a way up without them?"
WAY = "Yes: tram 28 stops a few steps below the gate, and a lift goes up from the lower town. Both run until ten."
LAST = "Good. Is the castle open today, and until when?"
TALKED = (
    ("user", QUESTION),
    ("assistant", ANSWER),
    ("user", WISH),
    ("assistant", WAY),
    ("user", LAST),
)
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_weather": (
        "Return the weather at a place for the next hours.",
        {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, or a part of one."},
                "hours": {"type": "integer", "description": "How far to look ahead.", "minimum": 1, "maximum": 48},
            },
            "required": ["place"],
        },
    ),
    "opening_hours": (
        "Return when a museum, a church or a monument is open on a day.",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "As people there call it."},
                "day": {"type": "string", "description": "As YYYY-MM-DD; today, if it is left out."},
            },
            "required": ["name"],
        },
    ),
}

_SAID = [{"role": role, "content": content} for role, content in TALKED]
_SYSTEM = {"role": "system", "content": INSTRUCTIONS}
_CHAT_TOOLS = [
    {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}
    for name, (words, schema) in TOOLS.items()
]

TALK: Mapping[str, Mapping[str, object]] = {
    "chat": {"messages": [_SYSTEM, *_SAID], "tools": _CHAT_TOOLS},
    "messages": {
        "max_tokens": 4096,
        "system": INSTRUCTIONS,
        "messages": _SAID,
        "tools": [
            {"name": name, "description": words, "input_schema": schema} for name, (words, schema) in TOOLS.items()
        ],
    },
    "responses": {
        "instructions": INSTRUCTIONS,
        "input": _SAID,
        "tools": [
            {"type": "function", "name": name, "description": words, "parameters": schema}
            for name, (words, schema) in TOOLS.items()
        ],
    },
}


def _called() -> dict[str, object]:
    arguments = json.dumps({"place": "Lisbon", "hours": 8})
    call = {"id": "call_7Jm2VqK0", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    result = json.dumps({"place": "Lisbon", "now": "dry, 19 degrees", "later": "showers from 17:00", "wind_kmh": 14})
    question, answer, *_, last = _SAID
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = {"role": "tool", "tool_call_id": call["id"], "content": result}
    return {"messages": [_SYSTEM, question, asked, told, answer, last], "tools": _CHAT_TOOLS}


CALLED: Mapping[str, object] = _called()
_GO = [{"role": "user", "content": "go"}]
SHORT: Mapping[str, Mapping[str, object]] = {
    "chat": {"messages": _GO},
    "messages": {"max_tokens": 4096, "messages": _GO},
    "responses": {"input": "go"},
}
