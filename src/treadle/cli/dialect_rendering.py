"""Renders example calls in a dialect, from its table row, for `treadle dialects`."""

import json
from collections.abc import Sequence
from typing import Any, cast

from treadle.protocols.text_calls.dialect_grammar import (
    Braces,
    Dialect,
    Elements,
    Framed,
    JsonBody,
    NamedJson,
    Pairs,
    Pythonic,
    Tagged,
    Whole,
)

Call = tuple[str, dict[str, Any]]
"""A name and its arguments."""
_ARGUMENT_NAMES = {
    "llama3_json": ("name", "parameters"),
    "internlm": ("name", "parameters"),
    "cohere_action": ("tool_name", "parameters"),
    "command_r": ("tool_name", "parameters"),
    "inkling": ("name", "args"),
}
"""What dialects call the name and the arguments, where not `name` and `arguments`."""


def render(dialect: Dialect, calls: Sequence[Call]) -> str:
    """Write calls in this dialect."""
    match dialect.grammar:
        case JsonBody() as grammar:
            return _json_body(dialect.id, grammar, calls)
        case NamedJson() as grammar:
            return _named(grammar, calls)
        case Tagged() as grammar:
            return _tagged(grammar, calls)
        case Pairs() as grammar:
            return _pairs(grammar, calls)
        case Elements() as grammar:
            return _elements(grammar, calls)
        case Pythonic() as grammar:
            return _pythonic(grammar, calls)
        case Braces() as grammar:
            return ("\n" if dialect.at_line else "").join(_braced(grammar, call) for call in calls)
        case Framed():
            frame = "<|start|>assistant<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"
            return "".join(frame.format(name, _json(given)) for name, given in calls)
        case Whole() as grammar:
            return _whole(dialect.id, grammar, calls)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json_body(dialect: str, grammar: JsonBody, calls: Sequence[Call]) -> str:
    name_key, given_key = _ARGUMENT_NAMES.get(dialect, ("name", "arguments"))
    objects = [{name: given} if grammar.is_keyed else {name_key: name, given_key: given} for name, given in calls]
    opener = grammar.maybe + ("\n" if grammar.maybe.startswith("<|message_sep") else "") + "".join(grammar.opener)
    closer = grammar.closers[0] if grammar.closers else ""
    if grammar.is_fenced:
        return f"{opener}\n```json\n{_json(objects)}\n```"
    if grammar.first != "{" and not grammar.separators:
        return f"{opener}{_json(objects)}{closer}"
    if grammar.separators == ";":
        return opener + "; ".join(map(_json, objects))
    if grammar.separators:
        return "\n".join([opener, *map(_json, objects), closer])
    gap = "" if closer else "\n"
    return gap.join(f"{opener}{_json(each)}{closer}" for each in objects)


def _named(grammar: NamedJson, calls: Sequence[Call]) -> str:
    wrapper = grammar.wrappers[0] if grammar.wrappers else ""
    closer = grammar.closers[0] if grammar.needs_closer else ""
    blocks: list[str] = []
    for name, given in calls:
        lead = grammar.lead + (f"id{grammar.id_end}" if grammar.id_end else "")
        mark = f"\n{grammar.args_mark} " if grammar.name_ends == ("\n",) and grammar.args_mark else grammar.args_mark
        ends = "" if mark.startswith("\n") else "".join(grammar.name_ends[:1])
        body = f"```json\n{_json(given)}\n```" if grammar.is_fenced else _json(given)
        gap = " " if grammar.opener.endswith("Action:") else ""
        blocks.append(f"{grammar.opener}{gap}{lead}{name}{ends}{mark}{body}{closer}")
    end = grammar.closers[1] if wrapper and len(grammar.closers) > 1 else ""
    return wrapper + ("\n" if grammar.name_ends == ("\n",) and not closer else "").join(blocks) + end


def _tagged(grammar: Tagged, calls: Sequence[Call]) -> str:
    lines: list[str] = []
    newline = "\n" if grammar.trims else ""
    for number, (name, given) in enumerate(calls, 1):
        index = f' index="{number}"' if grammar.name_attr == "tool" else ""
        named = f' {grammar.name_attr}="{name}"{index}' if grammar.name_attr else f"={name}"
        lines.append(f"{''.join(grammar.leads[1:])}{grammar.tag(grammar.call + named)}")
        for key, value in given.items():
            tag = grammar.param + (f' {grammar.key_attr}="{key}"' if grammar.key_attr else f"={key}")
            tag += _kind(grammar, value)
            lines.append(f"{grammar.tag(tag)}{newline}{_text(value)}{newline}{grammar.end(grammar.param)}")
        lines.append(grammar.end(grammar.call) + "".join(grammar.ends[:1] if grammar.leads else ()))
    wrap = grammar.wraps[0] if grammar.wraps else ""
    head = grammar.tag(wrap) if wrap else "".join(grammar.leads[:1])
    foot = grammar.end(wrap) if wrap else "".join(grammar.ends[1:])
    gap = "" if grammar.tail != ">" else "\n"
    return gap.join(filter(None, [head, *lines, foot]))


def _kind(grammar: Tagged, value: Any) -> str:
    if grammar.type_attr == "string":
        return f' string="{"true" if isinstance(value, str) else "false"}"'
    if grammar.type_attr == "type":
        kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
        return f' type="{kinds.get(cast("type[Any]", type(value)), "null")}"'
    return ""


def _pairs(grammar: Pairs, calls: Sequence[Call]) -> str:
    gap = "" if grammar.name_end == "" else "\n"
    blocks: list[str] = []
    for name, given in calls:
        sep = "<tool_sep>" if grammar.name_end == "sep" else ""
        values = [f"<arg_key>{key}</arg_key>{gap}<arg_value>{_text(value)}</arg_value>" for key, value in given.items()]
        blocks.append(gap.join([f"<tool_call>{name}{sep}", *values, "</tool_call>"]))
    if grammar.name_end == "sep":
        blocks = ["<tool_calls>", *blocks, "</tool_calls>"]
    return gap.join(blocks)


def _elements(grammar: Elements, calls: Sequence[Call]) -> str:
    mark = grammar.sentinel
    if not mark:
        return "\n".join(_element(name, given) for name, given in calls)
    blocks = [f'{mark}<invoke name="{name}">{_nested(mark, given)}{mark}</invoke>' for name, given in calls]
    return "\n".join([f"{mark}<tool_call>", *blocks, f"{mark}</tool_call>"])


def _element(name: str, given: dict[str, Any]) -> str:
    return "\n".join(
        [f"<{name}>", *(f"<{key}>\n{_text(value)}\n</{key}>" for key, value in given.items()), f"</{name}>"]
    )


def _nested(mark: str, value: Any) -> str:
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return "".join(f"{mark}<{key}>{_nested(mark, each)}{mark}</{key}>" for key, each in known.items())
    if isinstance(value, list):
        return "".join(f"{mark}<item>{_nested(mark, each)}{mark}</item>" for each in cast("list[Any]", value))
    return _text(value)


def _pythonic(grammar: Pythonic, calls: Sequence[Call]) -> str:
    if grammar.is_list:
        return f"{grammar.opener}[{', '.join(_python(call) for call in calls)}]{grammar.closer}"
    is_code = grammar.opener.startswith("`")
    lines = [f"print(default_api.{_python(call)})" if is_code else _python(call) for call in calls]
    return "\n".join([grammar.opener, *lines, grammar.closer])


def _python(call: Call) -> str:
    name, given = call
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def _braced(grammar: Braces, call: Call) -> str:
    name, given = call
    word = "" if grammar.opener.startswith("call:") else "call:"
    return f"{grammar.opener}{word}{name}{_in_braces(grammar.quote, given)}{grammar.closer}"


def _in_braces(quote: str, value: Any) -> str:
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return "{" + ",".join(f"{key}:{_in_braces(quote, each)}" for key, each in known.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_in_braces(quote, each) for each in cast("list[Any]", value)) + "]"
    if isinstance(value, str):
        return _json(value) if quote == '"' else f"{quote}{value}{quote}"
    return _json(value)


def _whole(dialect: str, grammar: Whole, calls: Sequence[Call]) -> str:
    if grammar.kind == "python":
        return f"[{', '.join(_python(call) for call in calls)}]"
    if dialect == "openai_json_text":
        functions = [{"name": name, "arguments": _json(given)} for name, given in calls]
        return _json({"tool_calls": [{"type": "function", "function": each} for each in functions]})
    objects = [{"name": name, "arguments": given} for name, given in calls]
    text = _json(objects if len(objects) > 1 else objects[0])
    return f"```json\n{text}\n```" if grammar.kind == "fence" else text
