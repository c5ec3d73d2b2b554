"""Asks Treadle a question, and then what it had to repair in the model's answers."""

import json
import os
from urllib.request import Request, urlopen

URL = os.environ.get("TREADLE_URL", "http://127.0.0.1:8700")
QUESTION = "How many of A7 and B2 are there?"
body = json.dumps({"model": "qwen3-coder:30b", "messages": [{"role": "user", "content": QUESTION}]}).encode()
request = Request(f"{URL}/v1/chat/completions", body, {"content-type": "application/json"})
with urlopen(request, timeout=60) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
    run = answer.headers["x-treadle-run"]
with urlopen(f"{URL}/treadle/v1/runs/{run}", timeout=60) as found:
    for entry in json.load(found)["entries"]:
        if entry["kind"] == "note":
            print(f"  {entry['data']['code']}: {entry['content']}")
