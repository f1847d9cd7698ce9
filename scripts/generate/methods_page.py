"""Renders `docs/methods.md`: every method of the protocol and its state in this server."""

from __future__ import annotations

from scripts.generate.handler_table import handled
from scripts.generate.table import entries
from treadle.server.handlers.refused import REASONS

HEAD = """\
# Methods

Every request of the protocol, generated from the method table by `make generate`. A client sees
the state too: a method that is refused answers with an error of kind `unsupported` that states the
reason, a method that is not implemented with one of kind `notImplemented`.
"Experimental" methods need `capabilities.experimentalApi` in `initialize`. `AsyncClient` and
`Client` have one Python method for each request; a server of another vendor may implement more
or fewer of them.

"""


def render() -> str:
    """Return the page."""
    built = {method for methods in handled().values() for method in methods} - REASONS.keys()
    listed = [entry.request for entry in entries()]
    count = sum(request.method in built for request in listed)
    others = f"refuses {len(REASONS)}, and"
    lines = [
        f"The server {others} implements {count} of {len(listed)} methods.\n\n",
        "| Method | State | Gate | Python |\n|---|---|---|---|\n",
    ]
    for request in sorted(listed, key=lambda request: request.method):
        state = "implemented" if request.method in built else "not implemented"
        if request.method in REASONS:
            state = f"refused: {REASONS[request.method]}"
        gate = "experimental" if request.experimental else ""
        call = f"`{request.call}`" if request.call else ""
        lines.append(f"| `{request.method}` | {state} | {gate} | {call} |\n")
    return HEAD + "".join(lines)
