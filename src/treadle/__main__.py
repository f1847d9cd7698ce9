"""The `treadle` command: answers a client's handshake first, then imports the rest."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the command line; the exit code is what it returns."""
    # What is imported now stays for good: collecting in between would only cost time.
    gc.disable()
    from treadle.server.fast_handshake import answer_first

    early = answer_first(sys.argv[1:])
    from treadle.support.code_guard import CodeGuard

    CodeGuard().install()
    from treadle.cli.main import run

    return run(sys.argv[1:], early=early)


if __name__ == "__main__":
    sys.exit(main())
