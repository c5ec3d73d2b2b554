"""The built-in demo model: offline and deterministic, it calls the tool that fits the text."""

from treadle.providers.demo_model.model import DemoModel

__all__ = ["DemoModel"]
