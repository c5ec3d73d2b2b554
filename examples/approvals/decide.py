"""The other side: waits for a question, shows it, and decides.

python decide.py                 asks you
python decide.py approve|deny    decides the first question that comes

A decision needs a key: TREADLE_KEY=$(treadle login --key) python decide.py
"""

import json
import os
import sys
import time
from typing import Any
from urllib.request import Request, urlopen

URL = os.environ.get("TREADLE_URL", "http://127.0.0.1:8700") + "/treadle/v1/approvals"
HEADERS = {"content-type": "application/json", "authorization": f"Bearer {os.environ['TREADLE_KEY']}"}


def ask(url: str, body: dict[str, object] | None = None) -> Any:
    """Ask Treadle."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, HEADERS), timeout=30) as answer:
        return json.load(answer)


while not (waiting := ask(f"{URL}?status=pending")["approvals"]):
    time.sleep(0.2)
question = ask(f"{URL}/{waiting[0]['id']}")
print(f"{question['tool']} {question['arguments']}")
print(f"  because: {', '.join(question['reasons'])}")
choice = sys.argv[1] if len(sys.argv) > 1 else input("approve or deny? ")
decision = {"approve": choice == "approve", "reason": "not during the audit", "digest": question["digest"]}
decided = ask(f"{URL}/{question['id']}", decision)
print(f"  {decided['status']}")
