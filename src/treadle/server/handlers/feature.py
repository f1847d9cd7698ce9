"""The mock method, with which clients test whether experimental methods are available."""

from __future__ import annotations

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.protocol.client_requests import CLIENT_REQUESTS, MOCK_EXPERIMENTAL_METHOD
from treadle.protocol.feature import MockExperimentalMethodParams, MockExperimentalMethodResponse
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)


@router.request(MOCK_EXPERIMENTAL_METHOD)
def mock_experimental_method(
    _ctx: Context[ClientSession], params: MockExperimentalMethodParams
) -> MockExperimentalMethodResponse:
    """Echo the value."""
    return MockExperimentalMethodResponse(echoed=params.value)
