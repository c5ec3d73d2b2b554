#!/usr/bin/env bash
# Two requests by hand: the model calls a tool of ours, we send its result back with the whole conversation.
set -euo pipefail
url=${TREADLE_URL:-http://127.0.0.1:8700}/v1/responses
model=${MODEL:-demo}
tools='[{"type": "function", "name": "get_population", "description": "Get the population of a city.",
         "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]'
question='{"type": "message", "role": "user", "content": "What is the population of Oslo?"}'

ask() { curl -sS --fail-with-body "$url" -H 'content-type: application/json' -d "$1"; }
pick() { python3 -c "import json,sys; r = json.load(sys.stdin); print($1)"; }

first=$(ask "{\"model\": \"$model\", \"input\": [$question], \"tools\": $tools}")
call=$(pick 'json.dumps(next(i for i in r["output"] if i["type"] == "function_call"))' <<<"$first")
call_id=$(pick 'r["call_id"]' <<<"$call")
echo "the model calls: $(pick 'r["name"] + " " + r["arguments"]' <<<"$call")"

result="{\"type\": \"function_call_output\", \"call_id\": \"$call_id\", \"output\": \"{\\\"population\\\": 720000}\"}"
empty='{"type": "message", "role": "assistant", "content": ""}'
second=$(ask "{\"model\": \"$model\", \"input\": [$question, $empty, $call, $result], \"tools\": $tools}")
echo "the model answers: $(pick '"".join(p["text"] for i in r["output"] if i["type"] == "message" for p in i["content"])' <<<"$second")"
