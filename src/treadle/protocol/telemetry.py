"""Telemetry that an administrator requires."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from treadle.protocol.base import SnakeSparse, UInt64

OtelHttpProtocol = Literal["binary", "json"]


class OtelTlsConfig(SnakeSparse, frozen=True, rename="kebab"):
    """Files for an encrypted connection to a collector."""

    ca_certificate: str | None = None
    client_certificate: str | None = None
    client_private_key: str | None = None


class OtlpHttp(SnakeSparse, frozen=True):
    """A collector that is reached over HTTP; the values of its headers are redacted."""

    endpoint: str
    headers: dict[str, str]
    protocol: OtelHttpProtocol
    tls: OtelTlsConfig | None = None


class OtlpGrpc(SnakeSparse, frozen=True):
    """A collector that is reached over gRPC; the values of its headers are redacted."""

    endpoint: str
    headers: dict[str, str]
    tls: OtelTlsConfig | None = None


class OtelExporterDetail(SnakeSparse, frozen=True, forbid_unknown_fields=True):
    """Where data is sent: exactly one field is set."""

    otlp_http: OtlpHttp | None = field(name="otlp-http", default=None)
    otlp_grpc: OtlpGrpc | None = field(name="otlp-grpc", default=None)


OtelExporter = Literal["none", "statsig"] | OtelExporterDetail


class OtelToolResultLogConfig(SnakeSparse, frozen=True):
    """How much of a tool's result is logged."""

    max_bytes: UInt64


class OtelRequirements(SnakeSparse, frozen=True):
    """What is sent to which collectors; null imposes nothing."""

    environment: str | None = None
    exporter: OtelExporter | None = None
    log_agent_responses: bool | None = None
    log_guardian_assessments: bool | None = None
    log_sse_deltas: bool | None = None
    log_user_prompt: bool | None = None
    metrics_exporter: OtelExporter | None = None
    span_attributes: dict[str, str] | None = None
    tool_result: OtelToolResultLogConfig | None = None
    trace_exporter: OtelExporter | None = None
    tracestate: dict[str, dict[str, str]] | None = None
