"""The plugin's fixtures, whether or not the installed package has it registered."""

from __future__ import annotations

from treadle.testing.plugin import (
    _treadle_homes,
    treadle_client,
    treadle_process,
    treadle_server,
    virtual_clock,
)

__all__ = ["_treadle_homes", "treadle_client", "treadle_process", "treadle_server", "virtual_clock"]
