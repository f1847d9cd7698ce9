"""The official SDK reads from our schemas what a server of unknown version supports."""

from __future__ import annotations

import os
import sys

from openai_codex._runtime_requirements import CheckoutCapabilities


def test_the_sdk_finds_the_newer_fields_in_our_schemas() -> None:
    """Upstream: on version 0.0.0 it runs `generate-json-schema` and reads three files."""
    command = (sys.executable, "-m", "treadle", "app-server")

    fields = CheckoutCapabilities(command=command, cwd=None, env=dict(os.environ)).fields

    assert {"toolOutput", "turnTrigger", "serviceTierForTurn"} <= fields["turn/start"]
    assert "excludeTurns" in fields["thread/resume"]
    assert "excludeTurns" in fields["thread/fork"]
