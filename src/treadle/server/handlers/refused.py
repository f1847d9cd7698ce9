"""Methods that this server knows and refuses, each with the reason that its client receives."""

from __future__ import annotations

from functools import partial
from typing import Final, NoReturn

from treadle.connection.context import Context
from treadle.connection.router import Router
from treadle.jsonrpc.errors import InvalidRequest
from treadle.protocol.client_requests import CLIENT_REQUESTS
from treadle.server.session import ClientSession

router: Router[ClientSession] = Router(CLIENT_REQUESTS)

NO_CATALOGUE: Final = (
    "there is no remote catalogue: add a marketplace from a folder or a repository"
)
_NO_SHARING: Final = "plugins are shared by a service of OpenAI: publish a git repository instead"

REASONS: Final = {
    "account/bedrock/discover": "there is no provider for Amazon Bedrock: configure a gateway",
    "account/bedrock/setup": "there is no provider for Amazon Bedrock: configure a gateway",
    "account/gcp/setup": "there is no provider for Google Cloud Vertex AI: configure a gateway",
    "environment/add": "commands run on the machine of this server only",
    "plugin/share/checkout": _NO_SHARING,
    "plugin/share/delete": _NO_SHARING,
    "plugin/share/list": _NO_SHARING,
    "plugin/share/save": _NO_SHARING,
    "plugin/share/updateTargets": _NO_SHARING,
    "plugin/skill/read": NO_CATALOGUE,
    "remoteControl/client/list": "there is no remote control",
    "remoteControl/client/revoke": "there is no remote control",
    "remoteControl/disable": "there is no remote control",
    "remoteControl/enable": "there is no remote control",
    "remoteControl/pairing/start": "there is no remote control",
    "remoteControl/pairing/status": "there is no remote control",
    "remoteControl/status/read": "there is no remote control",
    "rollout/compress": "stored threads are never compressed",
    "thread/prediction/request": "this server makes no predictions, nor does release 0.169.0",
}


def _refuse(reason: str, _context: Context[ClientSession], _params: object) -> NoReturn:
    raise InvalidRequest(f"not supported by this server: {reason}", kind="unsupported")


for _method, _reason in REASONS.items():
    router.request(CLIENT_REQUESTS[_method])(partial(_refuse, _reason))
