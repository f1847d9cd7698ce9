"""Registers the scenarios of the client's tests, which sessions play too."""

import tests.client.scenarios  # noqa: F401 - importing it registers them
