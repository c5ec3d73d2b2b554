"""The demo model: deterministic and offline, it calls the tool that fits the text and answers from the result.

Rules and tables only, no randomness.
"""

from treadle.providers.demo_model.model import DemoModel

__all__ = ["DemoModel"]
