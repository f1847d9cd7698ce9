"""Which parts of a request need the client's `experimentalApi`, beyond whole methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from treadle.protocol.account import ChatgptAuthTokensLoginAccountParams
from treadle.protocol.base import EXPERIMENTAL
from treadle.protocol.method import Request
from treadle.protocol.policy import GranularAskForApproval

# The reference uses another name for this field in its own gate, and clients may match the text.
_FIELD_DESCRIPTORS: Final = {"persistExtendedHistory": "persistFullHistory"}


def gated(method: Request[object, object], params: object) -> Iterator[str]:
    """Yield the descriptor of each experimental feature that these params use."""
    if method.experimental:
        yield method.method
    if isinstance(params, ChatgptAuthTokensLoginAccountParams):
        yield f"{method.method}.chatgptAuthTokens"
    if not isinstance(params, msgspec.Struct):
        return
    for attribute in sorted(EXPERIMENTAL.get(type(params), ())):
        if _is_used(params, attribute):
            name = _wire_name(params, attribute)
            yield f"{method.method}.{_FIELD_DESCRIPTORS.get(name, name)}"
    if isinstance(getattr(params, "approval_policy", None), GranularAskForApproval):
        yield "askForApproval.granular"


def _is_used(params: msgspec.Struct, attribute: str) -> bool:
    """Return whether the field is set: null, omitted and default values do not count."""
    value = getattr(params, attribute)
    return value not in (None, False, msgspec.UNSET) and value != _default(params, attribute)


def _default(params: msgspec.Struct, attribute: str) -> object:
    position = params.__struct_fields__.index(attribute) - len(params.__struct_fields__)
    defaults = params.__struct_defaults__
    return defaults[position] if -position <= len(defaults) else msgspec.UNSET


def _wire_name(params: msgspec.Struct, attribute: str) -> str:
    return params.__struct_encode_fields__[params.__struct_fields__.index(attribute)]
