#!/usr/bin/env bash
# Asks a gateway a handful of things and says which of them work. Exit code: how many did not.
set -uo pipefail
url=${TREADLE_URL:-http://127.0.0.1:8700}/v1/responses
model=${MODEL:-demo}
failures=0
weather='{"type": "function", "function": {"name": "weather_report", "description": "Report the weather in a city.",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}'

check() { # check NAME EXPECTED REQUEST [HEADER]: the answer must hold the expected text
  local answer
  answer=$(curl -sS "$url" -H 'content-type: application/json' -H "${4:-x-none: 1}" -d "$3")
  if [[ $answer == *"$2"* ]]; then
    echo "PASS  $1"
  else
    echo "FAIL  $1: no $2 in ${answer:0:200}"
    failures=$((failures + 1))
  fi
}

say() { echo "\"model\": \"$model\", \"input\": \"$1\""; }

check "plain text" '"status":"completed"' "{$(say 'Hello')}"
check "one call, nested tool form" '"name":"weather_report"' "{$(say 'Report the weather in Paris'), \"tools\": [$weather]}"
check "parallel calls" 'Rome' "{$(say 'Report the weather in Paris and Rome'), \"tools\": [$weather]}"
check "tool_choice none" '"type":"message"' "{$(say 'Report the weather in Paris'), \"tools\": [$weather], \"tool_choice\": \"none\"}"
check "tool_choice named" '"type":"function_call"' \
  "{$(say 'Hello'), \"tools\": [$weather], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"weather_report\"}}}"
check "streamed arguments" 'event: response.function_call_arguments.done' \
  "{$(say 'Report the weather in Paris'), \"tools\": [$weather], \"stream\": true}"
check "extended events" 'event: response.output_tool_call.end' \
  "{$(say 'Report the weather in Paris'), \"tools\": [$weather], \"stream\": true}" 'x-treadle-events: extended'
check "a mistake is named" '"param":"input"' "{\"model\": \"$model\", \"input\": 5}"
exit "$failures"
