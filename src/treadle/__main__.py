"""The `treadle` command: answers a client's handshake, then imports the rest."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    # Modules stay loaded for good: collecting garbage between imports only costs time.
    gc.disable()
    from treadle.server.fast_handshake import answer_first

    early = answer_first(sys.argv[1:])
    from treadle.support.code_guard import CodeGuard

    CodeGuard().install()
    from treadle.cli.main import run

    return run(sys.argv[1:], early=early)


if __name__ == "__main__":
    sys.exit(main())
