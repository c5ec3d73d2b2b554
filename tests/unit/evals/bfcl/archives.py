"""A small archive in the form of bfcl-eval's wheel, with questions and a class of our own."""

import json
import zipfile
from pathlib import Path
from typing import Any

FUNCTION = {
    "name": "geo.area",
    "description": "Compute an area.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer"},
            "height": {"type": "float"},
            "unit": {"type": "string"},
            "options": {"type": "dict", "properties": {"round": {"type": "any"}}},
        },
        "required": ["base", "height"],
    },
}
CLASS = """
import mpmath


class Node:
    def __init__(self, name):
        self.name = name
        self._touched = object()


class MathAPI:
    def log(self, x):
        return mpmath.log(x)


class GorillaFileSystem:
    def __init__(self):
        self.root = {}
        self._private = object()

    def _load_scenario(self, scenario, long_context=False):
        self.root = {name: Node(name) for name in scenario.get("root", [])}

    def touch(self, file_name):
        if file_name in self.root:
            return {"error": "it is there"}
        self.root[file_name] = Node(file_name)
        return {"created": file_name}

    def ls(self, a=False):
        return {"files": sorted(self.root)}
"""
DOCUMENT = [
    {
        "name": "touch",
        "description": "",
        "parameters": {"type": "dict", "properties": {"file_name": {"type": "string"}}, "required": ["file_name"]},
    },
    {"name": "ls", "description": "", "parameters": {"type": "dict", "properties": {"a": {"type": "boolean"}}}},
]


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


SINGLE: dict[str, list[dict[str, Any]]] = {
    "simple_python": [{"id": "simple_python_0", "question": [_user("Area?")], "function": [FUNCTION]}],
    "parallel": [{"id": "parallel_0", "question": [_user("Areas?")], "function": [FUNCTION]}],
    "irrelevance": [{"id": "irrelevance_0", "question": [_user("Weather?")], "function": [FUNCTION]}],
    "live_relevance": [{"id": "live_relevance_0", "question": [_user("Area?")], "function": [FUNCTION]}],
}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "simple_python": [
        {
            "id": "simple_python_0",
            "ground_truth": [
                {
                    "geo.area": {
                        "base": [10],
                        "height": [5.0, 5],
                        "unit": ["", "cm"],
                        "options": [{"round": [2, ""]}, ""],
                    }
                }
            ],
        }
    ],
    "parallel": [
        {
            "id": "parallel_0",
            "ground_truth": [
                {"geo.area": {"base": [1], "height": [2.0]}},
                {"geo.area": {"base": [3], "height": [4.0]}},
            ],
        }
    ],
    "multi_turn_miss_func": [
        {
            "id": "multi_turn_miss_func_0",
            "ground_truth": [["ls(a=True)"], [], ["touch('b.txt')", "ls()"]],
        }
    ],
}
MULTI = [
    {
        "id": "multi_turn_miss_func_0",
        "question": [_user("What is there?"), _user("Make b.txt."), []],
        "initial_config": {"GorillaFileSystem": {"root": ["a.txt"]}},
        "involved_classes": ["GorillaFileSystem"],
        "missed_function": {"2": ["touch"]},
        "excluded_function": [],
    }
]


def write_archive(path: Path) -> Path:
    """Write the archive and return where it is."""
    wheel = path / "bfcl_eval-0-py3-none-any.whl"
    code = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, rows in {**SINGLE, "multi_turn_miss_func": MULTI}.items():
            archive.writestr(f"bfcl_eval/data/BFCL_v4_{name}.json", _lines(rows))
        for name, rows in ANSWERS.items():
            archive.writestr(f"bfcl_eval/data/possible_answer/BFCL_v4_{name}.json", _lines(rows))
        archive.writestr("bfcl_eval/data/multi_turn_func_doc/gorilla_file_system.json", _lines(DOCUMENT))
        for folder in ("bfcl_eval", "bfcl_eval/eval_checker", "bfcl_eval/eval_checker/multi_turn_eval", code):
            archive.writestr(f"{folder}/__init__.py", "")
        archive.writestr(f"{code}/gorilla_file_system.py", CLASS)
        archive.writestr(f"{code}/math_api.py", CLASS)
    return wheel


def _lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)
