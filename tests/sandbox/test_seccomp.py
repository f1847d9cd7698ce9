"""The filter of system calls, for machines that are not here as well: a small kernel runs it."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from treadle.sandbox.seccomp import ATTRIBUTES, MODES, UnknownMachine, program

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
NEWUSER, SIGCHLD = 0x10000000, 17


def verdict(filter_: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel does with a call: 0 to allow it, or the error it gives."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    steps = list(struct.iter_unpack("=HBBI", filter_))
    position = accumulator = 0
    while True:
        code, if_true, if_false, value = steps[position]
        position += 1
        if code == 0x06:
            assert value == ALLOW or value & 0xFFFF0000 == ERRNO
            return 0 if value == ALLOW else value & 0xFFFF
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x54:
            accumulator &= value
        else:
            tests = {0x15: accumulator == value, 0x35: accumulator >= value}
            holds = tests[code] if code in tests else bool(accumulator & value)
            position += if_true if holds else if_false


@pytest.mark.parametrize(
    ("machine", "architecture", "numbers"),
    # read, connect, mount, ptrace
    [("x86_64", X86_64, (0, 42, 165, 101)), ("aarch64", AARCH64, (63, 203, 40, 117))],
)
def test_calls_are_known_by_the_numbers_of_the_machine(
    machine: str, architecture: int, numbers: tuple[int, ...]
) -> None:
    closed, opened = (program(network=is_open, machine=machine) for is_open in (False, True))
    assert [verdict(closed, architecture, n) for n in numbers] == [0, 1, 1, 1]
    assert [verdict(opened, architecture, n) for n in numbers] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("family", "kind", "expected"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM, 0),
        (socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0),
        (socket.AF_UNIX, socket.SOCK_SEQPACKET, 0),
        (socket.AF_UNIX, socket.SOCK_DGRAM, errno.EPERM),
        (socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, errno.EPERM),
        (socket.AF_INET, socket.SOCK_STREAM, errno.EPERM),
        (socket.AF_INET6, socket.SOCK_DGRAM, errno.EPERM),
        (16, socket.SOCK_RAW, errno.EPERM),
    ],
)
@pytest.mark.parametrize("number", [41, 53], ids=["socket", "socketpair"])
def test_without_network_sockets_are_local_and_connected(
    number: int, family: int, kind: int, expected: int
) -> None:
    closed, opened = (program(network=is_open, machine="x86_64") for is_open in (False, True))
    assert verdict(closed, X86_64, number, family, kind) == expected
    assert verdict(opened, X86_64, number, family, kind) == 0


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (56, (SIGCHLD,), 0),
        (56, (NEWUSER | SIGCHLD,), errno.EPERM),
        (435, (), errno.ENOSYS),
        (272, (0x200,), 0),
        (272, (NEWUSER,), errno.EPERM),
        (302, (0,), 0),
        (302, (4711,), errno.EPERM),
        (16, (0, 0x5401), 0),
        (16, (0, 0x5412), errno.EPERM),
        (16, (0, 0x541C), errno.EPERM),
        (16, (0, 0x5412 | 1 << 32), errno.EPERM),
    ],
    ids="fork clone clone3 unshare userns limit other-limit get paste linux paste-high".split(),
)
def test_some_calls_depend_on_their_arguments(
    number: int, arguments: tuple[int, ...], expected: int
) -> None:
    assert verdict(program(network=True, machine="x86_64"), X86_64, number, *arguments) == expected


def test_calls_of_another_architecture_are_refused() -> None:
    filter_ = program(network=True, machine="x86_64")
    assert verdict(filter_, I386, 3) == errno.EPERM
    assert verdict(filter_, X86_64, 0x40000000) == errno.EPERM


def test_more_can_be_refused() -> None:
    filter_ = program(network=True, also=(*MODES, *ATTRIBUTES), machine="x86_64")
    assert [verdict(filter_, X86_64, number) for number in (90, 188, 0)] == [1, 1, 0]


def test_an_unknown_machine_is_an_error_and_not_an_empty_filter() -> None:
    with pytest.raises(UnknownMachine, match="no table of system calls for vax"):
        program(network=False, machine="vax")
