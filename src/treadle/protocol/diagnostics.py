"""What the server says about its own health."""

from __future__ import annotations

from treadle.protocol.base import Params, UInt32, UInt64, Value


class ServerDiagnosticsGauge(Value, frozen=True):
    """One named number that the server measured just now, such as live threads."""

    name: str
    value: UInt64


class ServerDiagnosticsParams(Params, frozen=True):
    """Ask the server how it is doing; there is nothing to choose."""


class ServerDiagnosticsProcess(Value, frozen=True):
    """The server's own process and its memory; null where the platform cannot tell."""

    id: UInt32
    physical_footprint_bytes: UInt64 | None = None
    resident_memory_bytes: UInt64 | None = None


class ServerDiagnosticsResponse(Value, frozen=True):
    """The server's process and gauges at the moment of asking."""

    gauges: list[ServerDiagnosticsGauge]
    process: ServerDiagnosticsProcess
