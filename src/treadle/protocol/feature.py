"""Feature flags and the mock method that tests the experimental gate."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, UInt32, Value

ExperimentalFeatureStage = Literal["beta", "underDevelopment", "stable", "deprecated", "removed"]


class ExperimentalFeature(Value, frozen=True):
    """A feature flag, its current and default state; only beta features have texts for users."""

    default_enabled: bool
    enabled: bool
    name: str
    stage: ExperimentalFeatureStage
    announcement: str | None = None
    description: str | None = None
    display_name: str | None = None


class ExperimentalFeatureEnablementSetParams(Params, frozen=True):
    """Enable or disable features until the server exits; features not named are unchanged."""

    enablement: dict[str, bool]


class ExperimentalFeatureEnablementSetResponse(Value, frozen=True):
    """The flags that the request set."""

    enablement: dict[str, bool]


class ExperimentalFeatureListParams(Params, frozen=True):
    """Page through the feature flags, as seen by one loaded thread if it is named."""

    cursor: str | None = None
    limit: UInt32 | None = None
    thread_id: str | None = None


class ExperimentalFeatureListResponse(Value, frozen=True):
    """A page of feature flags; the last page has no cursor."""

    data: list[ExperimentalFeature]
    next_cursor: str | None = None


class MockExperimentalMethodParams(Params, frozen=True):
    """Call a method that does nothing, to test the gate on experimental methods."""

    value: str | None = None


class MockExperimentalMethodResponse(Value, frozen=True):
    """The value that was sent, unchanged."""

    echoed: str | None = None
