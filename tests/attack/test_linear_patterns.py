"""Text that others choose is read in linear time, however it is made.

Each text here took more than a minute before, which is longer than a test may take.
"""

from __future__ import annotations

from treadle.shell.safe import is_known_safe
from treadle.shell.syntax import MAX_SCRIPT


def test_the_format_of_printf() -> None:
    zeros = "0" * (MAX_SCRIPT - 100)
    assert not is_known_safe(["printf", f"%{zeros}"])
    assert is_known_safe(["printf", f"%{zeros}9.9d", "1"])
