"""The filter of system calls, also for other architectures: a small interpreter runs it."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from treadle.sandbox.backends.seccomp import ATTRIBUTES, MODES, UnknownMachine, program

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
NEWUSER, SIGCHLD = 0x10000000, 17


def verdict(filter_: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what the kernel does with a call: 0 to allow it, or the error number."""
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
def test_calls_are_identified_by_the_numbers_of_the_machine(
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


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (90, (0, 0o755), 0),
        (90, (0, 0o4755), errno.EPERM),
        (91, (3, 0o2755), errno.EPERM),
        (91, (3, 0o1777), 0),
        (268, (3, 0, 0o6755), errno.EPERM),
        (452, (3, 0, 0o4755, 0), errno.EPERM),
        (133, (0, 0o104755), errno.EPERM),
        (259, (3, 0, 0o100644), 0),
        (85, (0, 0o4755), errno.EPERM),
        (2, (0, os.O_RDONLY, 0o7777), 0),
        (2, (0, os.O_CREAT | os.O_WRONLY, 0o644), 0),
        (2, (0, os.O_CREAT | os.O_WRONLY, 0o4755), errno.EPERM),
        (257, (3, 0, os.O_RDONLY, 0o4755), 0),
        (257, (3, 0, os.O_CREAT, 0o4755), errno.EPERM),
        (257, (3, 0, os.O_TMPFILE | os.O_RDWR, 0o2755), errno.EPERM),
        (257, (3, 0, os.O_DIRECTORY, 0o6000), 0),
        (437, (), errno.ENOSYS),
    ],
)
def test_set_user_id_files_cannot_be_created(
    network: bool, number: int, arguments: tuple[int, ...], expected: int
) -> None:
    filter_ = program(network=network, machine="x86_64")
    assert verdict(filter_, X86_64, number, *arguments) == expected


def test_refused_calls_stay_refused_whatever_their_mode() -> None:
    filter_ = program(network=True, also=tuple(MODES), machine="x86_64")
    assert verdict(filter_, X86_64, 90, 0, 0o644) == errno.EPERM


@pytest.mark.parametrize(
    ("number", "arguments", "alone"),
    [
        (141, (0, 0, 5), 0),
        (141, (0, 4711, 5), errno.EPERM),
        (141, (2, 0, 5), errno.EPERM),
        (251, (1, 0), 0),
        (251, (3, 0), errno.EPERM),
        (251, (1, 4711), errno.EPERM),
        (203, (0,), 0),
        (203, (4711,), errno.EPERM),
        (144, (4711,), errno.EPERM),
        (314, (4711,), errno.EPERM),
        (256, (4711,), errno.EPERM),
    ],
)
def test_without_a_process_namespace_only_the_caller_can_be_slowed_down(
    number: int, arguments: tuple[int, ...], alone: int
) -> None:
    own, shared = (program(network=True, sees_others=s, machine="x86_64") for s in (False, True))
    assert verdict(own, X86_64, number, *arguments) == 0
    assert verdict(shared, X86_64, number, *arguments) == alone


def test_calls_of_another_architecture_are_refused() -> None:
    filter_ = program(network=True, machine="x86_64")
    assert verdict(filter_, I386, 3) == errno.EPERM
    assert verdict(filter_, X86_64, 0x40000000) == errno.EPERM


def test_further_calls_can_be_refused() -> None:
    filter_ = program(network=True, also=(*MODES, *ATTRIBUTES), machine="x86_64")
    assert [verdict(filter_, X86_64, number) for number in (90, 188, 0)] == [1, 95, 0]


def test_an_unknown_machine_is_an_error_and_not_an_empty_filter() -> None:
    with pytest.raises(UnknownMachine, match="no table of system calls for vax"):
        program(network=False, machine="vax")
