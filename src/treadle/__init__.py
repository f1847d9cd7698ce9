"""Treadle: an independent implementation of the Codex app-server protocol.

Names are resolved when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"
