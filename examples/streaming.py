"""A streamed tool call: the model asks, this program answers, the model goes on. Needs `pip install openai`."""

import json
import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TREADLE_URL", "http://127.0.0.1:8700") + "/v1", api_key="unused")
model = os.environ.get("MODEL", "demo")
tools = [
    {
        "type": "function",
        "name": "get_population",
        "description": "Get the population of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city's name."}},
            "required": ["city"],
        },
        "strict": False,
    }
]


def get_population(city: str) -> dict[str, object]:
    """Answer the model's question."""
    return {"city": city, "population": {"Paris": 2_100_000, "Oslo": 720_000}.get(city, 0)}


def ask(**request: object):
    """Stream one response and show what happens; return it whole."""
    with client.responses.stream(model=model, tools=tools, **request) as stream:
        for event in stream:
            if event.type == "response.output_item.added" and event.item.type == "function_call":
                print(f"call begins: {event.item.name}")
            elif event.type == "response.function_call_arguments.delta":
                print(f"  arguments: {event.delta}")
            elif event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
        return stream.get_final_response()


response = ask(input="What is the population of Paris?")
while calls := [item for item in response.output if item.type == "function_call"]:
    results = []
    for call in calls:
        output = get_population(**json.loads(call.arguments))
        print(f"  result: {output}")
        results.append({"type": "function_call_output", "call_id": call.call_id, "output": json.dumps(output)})
    response = ask(input=results, previous_response_id=response.id)
print()
