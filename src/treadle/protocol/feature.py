"""Feature flags and the mock method that proves the experimental gate."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.base import Params, UInt32, Value

ExperimentalFeatureStage = Literal["beta", "underDevelopment", "stable", "deprecated", "removed"]


class ExperimentalFeature(Value, frozen=True):
    """A feature flag, its state now and by default; texts for users exist in beta only."""

    default_enabled: bool
    enabled: bool
    name: str
    stage: ExperimentalFeatureStage
    announcement: str | None = None
    description: str | None = None
    display_name: str | None = None


class ExperimentalFeatureEnablementSetParams(Params, frozen=True):
    """Switch features for the life of the server process; those not named stay as they are."""

    enablement: dict[str, bool]


class ExperimentalFeatureEnablementSetResponse(Value, frozen=True):
    """The switches that the request set."""

    enablement: dict[str, bool]


class ExperimentalFeatureListParams(Params, frozen=True):
    """Page through the feature flags, as one loaded thread sees them if it is named."""

    cursor: str | None = None
    limit: UInt32 | None = None
    thread_id: str | None = None


class ExperimentalFeatureListResponse(Value, frozen=True):
    """A page of feature flags; no cursor means that it is the last."""

    data: list[ExperimentalFeature]
    next_cursor: str | None = None


class MockExperimentalMethodParams(Params, frozen=True):
    """Call a method that does nothing, to test the gate on experimental ones."""

    value: str | None = None


class MockExperimentalMethodResponse(Value, frozen=True):
    """The value that was sent, unchanged."""

    echoed: str | None = None
