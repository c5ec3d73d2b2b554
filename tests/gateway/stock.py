"""Requests as stock clients really send them: codex, Claude Code, gemini-cli and the SDKs, as they were seen.

Texts are shortened; every field, role, item and tool kind that sets a client apart is there.
"""

from typing import Any

Body = dict[str, Any]

ENVIRONMENT = "<environment_context><cwd>/project</cwd></environment_context>"
SHELL_SCHEMA: Body = {
    "type": "object",
    "properties": {"cmd": {"type": "string", "description": "Shell command."}},
    "required": ["cmd"],
    "additionalProperties": False,
}
CODEX_ALWAYS: Body = {
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-cache",
    "client_metadata": {"x-codex-installation-id": "0199"},
    "tool_choice": "auto",
}
CODEX_PROMPT: list[Body] = [
    {
        "type": "message",
        "id": "msg_d1",
        "role": "developer",
        "content": [{"type": "input_text", "text": "You are a coding agent."}],
    },
    {
        "type": "message",
        "id": "msg_d2",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Sandbox: danger-full-access."}],
    },
    {
        "type": "message",
        "id": "msg_u1",
        "role": "user",
        "content": [{"type": "input_text", "text": ENVIRONMENT}],
    },
    {
        "type": "message",
        "id": "msg_u2",
        "role": "user",
        "content": [{"type": "input_text", "text": "List the files."}],
    },
]


def function(name: str, schema: Body | None = None) -> Body:
    """Return a function tool of the Responses API as codex spells it."""
    return {
        "type": "function",
        "name": name,
        "description": f"The tool {name}.",
        "strict": False,
        "parameters": schema or SHELL_SCHEMA,
    }


def codex(*more: Body) -> Body:
    """Return codex's request for a model name it does not know: tools at the top, a namespace and hosted ones too."""
    return {
        **CODEX_ALWAYS,
        "model": "stub",
        "input": [*CODEX_PROMPT, *more],
        "tools": [
            function("exec_command"),
            function("write_stdin"),
            {
                "type": "namespace",
                "name": "multi_agent_v1",
                "description": "Agents.",
                "tools": [function("spawn_agent"), function("wait")],
            },
            {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": {"type": "text"}},
            {"type": "web_search", "external_web_access": True},
            {"type": "tool_search", "execution": "client"},
        ],
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "text": {"verbosity": "low"},
    }


CODE_MODE: Body = {
    "type": "additional_tools",
    "id": "at_1",
    "role": "developer",
    "tools": [
        {
            "type": "namespace",
            "name": "functions",
            "description": "Code mode.",
            "tools": [
                {
                    "type": "custom",
                    "name": "exec",
                    "description": "Run JavaScript.",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
                },
                function("wait"),
            ],
        },
        {"type": "namespace", "name": "clock", "description": "Time.", "tools": [function("sleep")]},
    ],
}


def codex_lite(*more: Body) -> Body:
    """Return codex's request for a bundled model name: no `tools`, they are the first item of the input."""
    return {
        **CODEX_ALWAYS,
        "model": "gpt-6.1-sol",
        "input": [CODE_MODE, *CODEX_PROMPT, *more],
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "context": "all_turns"},
    }


def codex_title() -> Body:
    """Return the structured-output request that interactive codex makes at start-up."""
    schema: Body = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": schema}
    return {**CODEX_ALWAYS, "model": "stub", "input": CODEX_PROMPT, "text": {"format": form}}


CLAUDE_TOOLS: list[Body] = [
    {
        "name": "Bash",
        "description": "Run a command.",
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"command": {"type": "string"}, "timeout": {"type": "number"}},
            "required": ["command"],
            "additionalProperties": False,
        },
    },
    {
        "name": "WebFetch",
        "description": "Fetch a page.",
        "input_schema": {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}},
        "defer_loading": True,
    },
]
CLAUDE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27,"
    "advanced-tool-use-2025-11-20,mid-conversation-tool-changes-2026-07-01",
    "x-api-key": "sk-ant-unused",
    "user-agent": "claude-cli/2.1.325 (external, sdk-cli)",
    "x-app": "cli",
    "x-stainless-retry-count": "0",
}


def claude_code(*more: Body) -> Body:
    """Return Claude Code's request: system entries among the messages, adaptive thinking, context management."""
    return {
        "model": "stub",
        "max_tokens": 32_000,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.325;"},
            {"type": "text", "text": "You are a coding agent.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "List the files."}]},
            {"role": "system", "content": [{"type": "text", "text": "# Environment\nWorking directory: /project"}]},
            {"role": "system", "content": "Available agents: general-purpose."},
            *more,
        ],
        "tools": CLAUDE_TOOLS,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"device_id":"d","session_id":"s"}'},
    }


def claude_title() -> Body:
    """Return the structured-output request that interactive Claude Code makes for a title."""
    schema: Body = {
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
        "additionalProperties": False,
    }
    return {
        "model": "stub",
        "max_tokens": 512,
        "messages": [{"role": "user", "content": "List the files."}],
        "system": [{"type": "text", "text": "Name the session."}],
        "tools": [],
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        "temperature": 1,
    }


GEMINI_TOOLS: list[Body] = [
    {
        "functionDeclarations": [
            {
                "name": "run_shell_command",
                "description": "Run a command.",
                "parametersJsonSchema": {
                    "type": "object",
                    "properties": {"command": {"type": "string"}},
                    "required": ["command"],
                },
            },
            {"name": "list_directory", "description": "List.", "parametersJsonSchema": {"type": "object"}},
        ]
    }
]


def gemini_cli(*more: Body) -> Body:
    """Return gemini-cli's request."""
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "This is the Gemini CLI."}, {"text": "List the files."}]},
            *more,
        ],
        "systemInstruction": {"role": "user", "parts": [{"text": "You are a CLI agent."}]},
        "tools": GEMINI_TOOLS,
        "generationConfig": {
            "temperature": 1,
            "topP": 0.95,
            "topK": 64,
            "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192},
        },
    }


def gemini_router() -> Body:
    """Return the question that gemini-cli asks a router model first: JSON, with types in upper case."""
    return {
        "contents": [{"role": "user", "parts": [{"text": "List the files."}]}],
        "systemInstruction": {"role": "user", "parts": [{"text": "Choose a model."}]},
        "generationConfig": {
            "temperature": 0,
            "topP": 1,
            "maxOutputTokens": 1024,
            "responseMimeType": "application/json",
            "responseJsonSchema": {
                "type": "OBJECT",
                "properties": {"reasoning": {"type": "STRING"}, "model_choice": {"type": "STRING", "enum": ["flash"]}},
                "required": ["reasoning", "model_choice"],
            },
            "thinkingConfig": {"thinkingBudget": 512},
        },
    }


def genai_python(*more: Body) -> Body:
    """Return google-genai's request for Python: snake case inside camel case."""
    return {
        "contents": [{"role": "user", "parts": [{"text": "List the files."}]}, *more],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "run_shell_command",
                        "description": "Run a command.",
                        "parameters_json_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {"response_json_schema": None, "candidateCount": 1},
    }
