"""What every table of treadle.toml is."""

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of treadle.toml."""
