"""Settings from `treadle.toml`, the environment and flags, with checks and helpful errors."""

from treadle.config.example_file import write_example as write_example
from treadle.config.loader import Loaded as Loaded
from treadle.config.loader import inspect_settings as inspect_settings
from treadle.config.loader import load_settings as load_settings
from treadle.config.loader import read_settings as read_settings
from treadle.config.settings import LimitsSection as LimitsSection
from treadle.config.settings import LocalSection as LocalSection
from treadle.config.settings import Mcp as Mcp
from treadle.config.settings import Route as Route
from treadle.config.settings import ServerSection as ServerSection
from treadle.config.settings import Settings as Settings
from treadle.config.settings import StoreSection as StoreSection
from treadle.config.settings import TerminalSection as TerminalSection
from treadle.config.settings import ToolsSection as ToolsSection
from treadle.config.settings import Upstream as Upstream
from treadle.config.settings import for_terminal as for_terminal
from treadle.config.settings import sqlite_path as sqlite_path
