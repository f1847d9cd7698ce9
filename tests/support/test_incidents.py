"""Repeated problems log one line, and later a line with a count."""

from __future__ import annotations

import logging

import pytest

from treadle.support.incidents import INTERVAL_S, Incident


def test_repetitions_are_counted_and_reported_after_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    incident = Incident(logging.getLogger("test"), "trouble", clock=lambda: now[0])
    for _ in range(1000):
        incident.happened("why")
    now[0] = INTERVAL_S
    incident.happened("why still")

    assert [record.getMessage() for record in caplog.records] == ["trouble", "trouble"]
    assert [vars(record).get("more_since_last") for record in caplog.records] == [None, 999]
    assert [vars(record)["reason"] for record in caplog.records] == ["why", "why still"]
