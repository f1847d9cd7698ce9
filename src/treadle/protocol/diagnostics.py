"""The server's report about its own health."""

from __future__ import annotations

from treadle.protocol.base import Params, UInt32, UInt64, Value


class ServerDiagnosticsGauge(Value, frozen=True):
    """One named measurement of the server, such as the number of live threads."""

    name: str
    value: UInt64


class ServerDiagnosticsParams(Params, frozen=True):
    """Read the server's diagnostics; there are no options."""


class ServerDiagnosticsProcess(Value, frozen=True):
    """The server's process and its memory; null where the platform does not report it."""

    id: UInt32
    physical_footprint_bytes: UInt64 | None = None
    resident_memory_bytes: UInt64 | None = None


class ServerDiagnosticsResponse(Value, frozen=True):
    """The server's process and gauges at the time of the request."""

    gauges: list[ServerDiagnosticsGauge]
    process: ServerDiagnosticsProcess
