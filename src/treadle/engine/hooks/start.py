"""How a session starts, as hooks see it in their input."""

from __future__ import annotations

from typing import Literal, TypeAlias

StartSource: TypeAlias = Literal["startup", "resume", "clear", "compact", "fork"]
