"""The public API of the kit: every name can be imported, and the plugin imports little."""

from __future__ import annotations

import subprocess
import sys

import treadle.testing
from treadle.testing import fake


def test_every_public_name_can_be_imported() -> None:
    missing = [name for name in treadle.testing.__all__ if not hasattr(treadle.testing, name)]
    missing += [name for name in fake.__all__ if not hasattr(fake, name)]
    assert missing == []


def test_only_the_plugin_imports_pytest_and_the_plugin_imports_little_else() -> None:
    script = (
        "import sys\n"
        "from treadle.testing import *\n"
        "assert 'pytest' not in sys.modules\n"
        "for name in [name for name in sys.modules if name.startswith('treadle')]:\n"
        "    del sys.modules[name]\n"
        "import treadle.testing.plugin\n"
        "print(*sorted(name for name in sys.modules if name.startswith('treadle')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.split() == ["treadle", "treadle.testing", "treadle.testing.plugin"]
