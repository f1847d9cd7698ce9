"""The profile for macOS, as text: the tests do not run on macOS."""

from __future__ import annotations

from treadle.sandbox.backends.seatbelt import arguments, profile
from treadle.sandbox.policy import Confinement, WritableRoot
from treadle.support.listeners import OWN_LISTENERS

BASE = profile(Confinement()).removesuffix("(allow file-read*)\n")


def rules(confinement: Confinement) -> list[str]:
    """Return the rules that are not common to all profiles."""
    return profile(confinement).removeprefix(BASE).splitlines()


def test_everything_is_refused_unless_it_is_allowed() -> None:
    assert BASE.startswith("(version 1)\n(deny default)\n")
    assert "network" not in BASE
    assert BASE.count("(") == BASE.count(")")


def test_reading_is_allowed_and_nothing_else() -> None:
    assert rules(Confinement()) == ["(allow file-read*)"]


def test_writable_folders_are_opened_without_their_protected_paths() -> None:
    confinement = Confinement((WritableRoot("/ws", ("/ws/.git", "/ws/.codex")), WritableRoot("/x")))
    assert rules(confinement) == [
        "(allow file-read*)",
        (
            '(allow file-read* file-write* (require-all (subpath (param "PATH_0"))'
            ' (require-not (subpath (param "PATH_2"))) (require-not (subpath (param "PATH_3")))))'
        ),
        '(allow file-read* file-write* (require-all (subpath (param "PATH_1"))))',
    ]


def test_the_network_is_opened_when_it_is_allowed() -> None:
    assert rules(Confinement(network=True))[1:] == [
        "(allow network-outbound)",
        "(allow network-inbound)",
        "(allow system-socket)",
    ]


def test_denials_come_last_because_the_last_rule_wins() -> None:
    confinement = Confinement((WritableRoot("/ws"),), denied=("/ws/secret",), readable=("/usr",))
    assert rules(confinement) == [
        '(allow file-read* (subpath (param "PATH_1")))',
        '(allow file-read* file-write* (require-all (subpath (param "PATH_0"))))',
        '(deny file-read* file-write* (subpath (param "PATH_2")))',
    ]


def test_paths_are_parameters_so_that_no_path_can_be_a_rule() -> None:
    path = '/ws") (allow default) ("'
    confinement = Confinement((WritableRoot(path),))
    command = arguments(["ls", "-l"], confinement)
    assert command == [
        "/usr/bin/sandbox-exec",
        "-p",
        profile(confinement),
        f"-DPATH_0={path}",
        "--",
        "ls",
        "-l",
    ]
    assert path not in profile(confinement)


def test_the_listeners_of_the_server_stay_closed_to_a_command_with_the_network() -> None:
    OWN_LISTENERS.add(4242)
    OWN_LISTENERS.add("/home/me/control.sock")
    try:
        closed = rules(Confinement(network=True))[2:4]
        argv = arguments(["true"], Confinement(network=True))
        offline = rules(Confinement())
    finally:
        OWN_LISTENERS.remove(4242)
        OWN_LISTENERS.remove("/home/me/control.sock")

    assert closed == [
        '(deny network-outbound (remote ip "*:4242"))',
        '(deny network-outbound (literal (param "PATH_0")))',
    ]
    assert "-DPATH_0=/home/me/control.sock" in argv
    assert offline == ["(allow file-read*)"]
