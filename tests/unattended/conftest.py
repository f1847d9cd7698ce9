"""Imports the scenarios of the client tests: the fake servers of these tests play them too."""

import tests.client.scenarios  # noqa: F401 - importing it registers them
