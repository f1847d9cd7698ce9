"""Test support for programs that use an app-server: servers, fakes, recordings and a clock.

Nothing here needs a key or the network, and only `treadle.testing.plugin` needs pytest.
Names are resolved when they are first used: pytest loads the plugin in every run.
"""

from __future__ import annotations

# As in `typing`, whose import would be half the cost of this one.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from treadle.model.base import ModelRequest
    from treadle.model.scripted.script import (
        Response,
        Script,
        ScriptLike,
        Step,
        calls,
        custom_call,
        drops,
        ends,
        fails,
        gives,
        limits,
        load_script,
        plan,
        reroutes,
        says,
        searches,
        thinks,
        usage,
        waits,
        waits_for,
    )
    from treadle.testing import fake, hostile
    from treadle.testing.clock import VirtualClock
    from treadle.testing.fake.connection import FakeConnection
    from treadle.testing.fake.server import FakeAppServer
    from treadle.testing.process import TreadleProcess
    from treadle.testing.provider import Provider, ProviderRequest
    from treadle.testing.recording import Recorder, record
    from treadle.testing.replaying import CassetteMismatch, Player, replay
    from treadle.testing.scripted_provider import scripted_provider
    from treadle.testing.server import TreadleServer, treadle_server

__all__ = [
    "CassetteMismatch",
    "FakeAppServer",
    "FakeConnection",
    "ModelRequest",
    "Player",
    "Provider",
    "ProviderRequest",
    "Recorder",
    "Response",
    "Script",
    "ScriptLike",
    "Step",
    "TreadleProcess",
    "TreadleServer",
    "VirtualClock",
    "calls",
    "custom_call",
    "drops",
    "ends",
    "fails",
    "fake",
    "gives",
    "hostile",
    "limits",
    "load_script",
    "plan",
    "record",
    "replay",
    "reroutes",
    "says",
    "scripted_provider",
    "searches",
    "thinks",
    "treadle_server",
    "usage",
    "waits",
    "waits_for",
]

_HOMES = {
    "treadle.model.base": "ModelRequest",
    "treadle.model.scripted.script": "Response Script ScriptLike Step calls custom_call drops "
    "ends fails gives limits load_script plan reroutes says searches thinks usage waits waits_for",
    "treadle.testing.clock": "VirtualClock",
    "treadle.testing.fake.connection": "FakeConnection",
    "treadle.testing.fake.server": "FakeAppServer",
    "treadle.testing.process": "TreadleProcess",
    "treadle.testing.provider": "Provider ProviderRequest",
    "treadle.testing.recording": "Recorder record",
    "treadle.testing.replaying": "CassetteMismatch Player replay",
    "treadle.testing.scripted_provider": "scripted_provider",
    "treadle.testing.server": "TreadleServer treadle_server",
}
_MODULES = ("fake", "hostile")


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"treadle.testing.{name}")
    for module, names in _HOMES.items():
        if name in names.split():
            value: object = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'treadle.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
