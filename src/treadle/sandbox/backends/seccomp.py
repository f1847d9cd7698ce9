"""The system calls that a confined command may not make, as a seccomp program.

The program is in the kernel's binary format: bubblewrap reads it from a descriptor, the supervisor
installs it itself. It blocks what namespaces and Landlock leave open: sockets by file system path,
other kernel interfaces to files and sockets, creation of namespaces, and files that run with the
rights of their owner.
"""

from __future__ import annotations

import errno
import os
import struct
from functools import cache
from typing import Final, NamedTuple

# Offsets in `struct seccomp_data`; the argument is the lower half of its 64 bits.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000

_X32: Final = 0x40000000
_AF_UNIX, _SOCK_TYPE_MASK, _SOCK_STREAM, _SOCK_SEQPACKET = 1, 0xF, 1, 5
_AF_INET, _AF_INET6 = 2, 10
_NEW_NAMESPACE: Final = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# A lease makes other programs wait when they open the file: F_SETLEASE, F_NOTIFY and F_SETDELEG.
_LEASES: Final = (1024, 1026, 1040)
# Set-user-id and set-group-id; and the flags with which `open` uses its mode at all.
_SET_ID, _CREATES = 0o6000, 0o20000100
# The largest segment of shared memory: an unattached one counts for no process. There can be
# 4,096 of them, and 32,000 sets of semaphores with 64 bytes for each.
_SEGMENT_BYTES, _SET_SIZE = 64 * 1024, 64
# Requests that change files through a read-only descriptor, which Landlock does not cover: flags
# such as "append only", versions, encryption and verity.
_OF_FLAGS: Final = (0x40086602, 0x401C5820, 0x40087602, 0x40086604, 0x800C6613, 0x40806685)
# All requests of btrfs, which create and remove subvolumes, except those that copy file blocks.
_TYPE_MASK, _BTRFS, _CLONES = 0xFF00, 0x9400, (0x40049409, 0x4020940D, 0xC0189436)

# Name, number on x86_64, number on machines with the generic table; -1: missing.
_CALLS: Final = """
accept 43 202, accept4 288 242, acct 163 89, add_key 248 217, bind 49 200, bpf 321 280, chmod 90 -1,
chown 92 -1, chroot 161 51, clone 56 220, clone3 435 435, connect 42 203, creat 85 -1,
delete_module 176 106, fanotify_init 300 262, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452,
fchown 93 55, fchownat 260 54, fcntl 72 25, file_setattr 469 469, finit_module 313 273,
fremovexattr 199 16, fsconfig 431 431, fsetxattr 190 7, fsmount 432 432, fsopen 430 430,
fspick 433 433, futimesat 261 -1, init_module 175 105, io_uring_enter 426 426,
io_uring_register 427 427, io_uring_setup 425 425, ioctl 16 29, ioperm 173 -1, iopl 172 -1,
ioprio_set 251 30, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219, lchown 94 -1,
listen 50 201, lremovexattr 198 15, lsetxattr 189 6, migrate_pages 256 238, mknod 133 -1,
mknodat 259 33, mount 165 40, mount_setattr 442 442, move_mount 429 429, move_pages 279 239,
mq_getsetattr 245 185, mq_notify 244 184, mq_open 240 180, mq_timedreceive 243 183,
mq_timedsend 242 182, mq_unlink 241 181, msgctl 71 187, msgget 68 186, msgrcv 70 188, msgsnd 69 189,
name_to_handle_at 303 264, open 2 -1, open_by_handle_at 304 265, open_tree 428 428,
open_tree_attr 467 467, openat 257 56, openat2 437 437, perf_event_open 298 241,
pidfd_getfd 438 438, pivot_root 155 41, prlimit64 302 261, process_vm_readv 310 270,
process_vm_writev 311 271, ptrace 101 117, quotactl 179 60, quotactl_fd 443 443, reboot 169 142,
removexattr 197 14, removexattrat 466 466, request_key 249 218, sched_setaffinity 203 122,
sched_setattr 314 274, sched_setparam 142 118, sched_setscheduler 144 119, semctl 66 191,
semget 64 190, semop 65 193, semtimedop 220 192, setdomainname 171 162, sethostname 170 161,
setns 308 268, setpriority 141 140, setxattr 188 5, setxattrat 463 463, shmat 30 196, shmctl 31 195,
shmget 29 194, socket 41 198, socketpair 53 199, swapoff 168 225, swapon 167 224, syslog 103 116,
truncate 76 45, umount2 166 39, unshare 272 97, userfaultfd 323 282, utime 132 -1, utimensat 280 88,
utimes 235 -1, vhangup 153 58, vmsplice 278 75
"""
_MACHINES: Final = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
    "riscv64": (0xC00000F3, 1),
}

_ALWAYS: Final = """
acct add_key bpf chroot delete_module fanotify_init file_setattr finit_module fsconfig fsmount
fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl
kexec_file_load kexec_load keyctl mount mount_setattr move_mount msgget name_to_handle_at
open_by_handle_at open_tree open_tree_attr
perf_event_open pidfd_getfd pivot_root process_vm_readv process_vm_writev ptrace quotactl
quotactl_fd reboot request_key setdomainname sethostname setns swapoff swapon syslog umount2
userfaultfd vhangup vmsplice
""".split()
_NETWORK: Final = "accept accept4 bind connect listen".split()
ATTRIBUTES: Final = """
fremovexattr fsetxattr lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat
""".split()
"""Calls that change a file's extended attributes, which Landlock does not cover."""
# The error of a file system without attributes: `cp -p` and `install` then continue. A page that
# `vmsplice` puts into a pipe keeps up to 2 MiB of memory that no process maps; programs do without.
# Message queues may hold 32 GiB in empty messages, and only their own namespace can see them.
_ERRORS: Final = {
    **dict.fromkeys(ATTRIBUTES, errno.EOPNOTSUPP),
    "msgget": errno.ENOSYS,
    "vmsplice": errno.ENOSYS,
}
IPC: Final = """
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd
semctl semget semop semtimedop shmat shmctl shmget
""".split()
"""Calls for memory, queues and semaphores that all processes of a user share by name or number."""
MODES: Final = """
chmod chown fchmod fchmodat fchmodat2 fchown fchownat futimesat lchown utime utimensat utimes
""".split()
"""Calls that change a file's owner, mode or times, which Landlock does not cover."""


class UnknownMachine(Exception):
    """The system call numbers of this machine type are unknown."""


class _Step(NamedTuple):
    code: int
    value: int
    if_true: int = 0
    if_false: int = 0


@cache
def program(
    *,
    network: bool,
    has_proxy: bool = False,
    sees_others: bool = False,
    also: tuple[str, ...] = (),
    machine: str = "",
) -> bytes:
    """Return the filter for a command, with or without network; `also` names more calls to block.

    A command that `sees_others`, without its own process namespace, may only set its own
    priorities and affinities. With an egress proxy, a command may use its own network, which is
    connected only to the proxy.

    Raises:
        UnknownMachine: the system call numbers of this machine are unknown.
    """
    machine = machine or os.uname().machine
    if machine not in _MACHINES:
        raise UnknownMachine(f"no table of system calls for {machine}")
    architecture, column = _MACHINES[machine]
    numbers = {words[0]: int(words[1 + column]) for words in map(str.split, _CALLS.split(","))}
    steps = [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, architecture, if_true=1),
        _refuse(),
        _Step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [_Step(_AT_LEAST, _X32, if_false=1), _refuse()]
    refused = [*_ALWAYS, *also, *([] if network or has_proxy else _NETWORK)]
    bodies = _conditional(network=network)
    if sees_others:
        bodies |= _of_others()
    bodies |= {name: [_refuse(_ERRORS.get(name, errno.EPERM))] for name in refused}
    if has_proxy:
        bodies["socket"] = _of_the_internet()
    for name, body in bodies.items():
        if numbers[name] >= 0:
            steps += [_Step(_EQUAL, numbers[name], if_false=len(body)), *body]
    steps.append(_Step(_RETURN, _ALLOW))
    return b"".join(
        struct.pack("=HBBI", step.code, step.if_true, step.if_false, step.value) for step in steps
    )


def _conditional(*, network: bool) -> dict[str, list[_Step]]:
    """Block calls with some of their arguments."""
    allow = _Step(_RETURN, _ALLOW)
    namespaces = [
        _argument(0),
        _Step(_ANY_BIT, _NEW_NAMESPACE, if_false=1),
        _refuse(),
        allow,
    ]
    bodies = {
        "clone": namespaces,
        "unshare": namespaces,
        # Its flags are in memory, which a filter cannot read; C libraries fall back to clone.
        "clone3": [_refuse(errno.ENOSYS)],
        # A limit set for another process can kill it, like a signal.
        "prlimit64": [_argument(0), _Step(_EQUAL, 0, if_true=1), _refuse(), allow],
        **_set_ids(),
        "shmget": [
            _upper_half(1),
            _Step(_EQUAL, 0, if_false=2),
            _argument(1),
            _Step(_AT_LEAST, _SEGMENT_BYTES + 1, if_false=1),
            _refuse(errno.EINVAL),
            allow,
        ],
        "semget": [
            _argument(1),
            _Step(_AT_LEAST, _SET_SIZE + 1, if_false=1),
            _refuse(errno.EINVAL),
            allow,
        ],
        "ioctl": _controls(),
        "fcntl": _leases(),
    }
    if network:
        return bodies
    # A datagram socket reaches any other by its path, even without connect.
    local = [
        _argument(0),
        _Step(_EQUAL, _AF_UNIX, if_false=4),
        _argument(1),
        _Step(_AND, _SOCK_TYPE_MASK),
        _Step(_EQUAL, _SOCK_STREAM, if_true=2),
        _Step(_EQUAL, _SOCK_SEQPACKET, if_true=1),
        _refuse(),
        allow,
    ]
    return bodies | {"socket": local, "socketpair": local}


def _controls() -> list[_Step]:
    """Block some requests to a device or a file system."""
    # Input injected into a terminal would let a command act as its user.
    refused = (_TIOCSTI, _TIOCLINUX, *_OF_FLAGS)
    found: list[_Step] = [_argument(1)]
    for request in refused:
        found += [_Step(_EQUAL, request, if_false=1), _refuse()]
    for request in _CLONES:
        found += [_Step(_EQUAL, request, if_false=1), _Step(_RETURN, _ALLOW)]
    return [
        *found,
        _Step(_AND, _TYPE_MASK),
        _Step(_EQUAL, _BTRFS, if_false=1),
        _refuse(),
        _Step(_RETURN, _ALLOW),
    ]


def _leases() -> list[_Step]:
    """Block leases and notifications with the error of a file system that has none."""
    found = [_argument(1)]
    for request in _LEASES:
        found += [_Step(_EQUAL, request, if_false=1), _refuse(errno.EINVAL)]
    return [*found, _Step(_RETURN, _ALLOW)]


def _set_ids() -> dict[str, list[_Step]]:
    """Block the creation of files that run with the rights of their owner."""
    mode_at = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1}
    mode_at |= {"mknod": 1, "mknodat": 2}
    bodies = {name: _mode_at(index) for name, index in mode_at.items()}
    for name, flags in {"open": 1, "openat": 2}.items():
        mode = _mode_at(flags + 1)
        # Without one of these flags the mode argument is undefined.
        skip = _Step(_ANY_BIT, _CREATES, if_false=len(mode))
        bodies[name] = [_argument(flags), skip, *mode, _Step(_RETURN, _ALLOW)]
    # Its mode is in memory, which a filter cannot read; libraries fall back to openat.
    bodies["openat2"] = [_refuse(errno.ENOSYS)]
    return bodies


def _mode_at(index: int) -> list[_Step]:
    return [
        _argument(index),
        _Step(_ANY_BIT, _SET_ID, if_false=1),
        _refuse(),
        _Step(_RETURN, _ALLOW),
    ]


def _of_others() -> dict[str, list[_Step]]:
    """Block calls that slow down other processes of the user; 0 is the caller itself."""
    allow = _Step(_RETURN, _ALLOW)
    names = "migrate_pages move_pages sched_setaffinity sched_setattr sched_setparam"
    itself = [_argument(0), _Step(_EQUAL, 0, if_true=1), _refuse(), allow]
    bodies = dict.fromkeys((*names.split(), "sched_setscheduler"), itself)
    # A process or a process group; all processes of a user come third.
    for name, user in {"setpriority": 2, "ioprio_set": 3}.items():
        bodies[name] = [
            _argument(0),
            _Step(_AT_LEAST, user, if_true=2),
            _argument(1),
            _Step(_EQUAL, 0, if_true=1),
            _refuse(),
            allow,
        ]
    return bodies


def _of_the_internet() -> list[_Step]:
    """Block sockets with a path in the file system, since `connect` is allowed."""
    return [
        _argument(0),
        _Step(_EQUAL, _AF_INET, if_true=2),
        _Step(_EQUAL, _AF_INET6, if_true=1),
        _refuse(),
        _Step(_RETURN, _ALLOW),
    ]


def _argument(index: int) -> _Step:
    return _Step(_LOAD, _ARGUMENTS + 8 * index)


def _upper_half(index: int) -> _Step:
    return _Step(_LOAD, _ARGUMENTS + 8 * index + 4)


def _refuse(number: int = errno.EPERM) -> _Step:
    return _Step(_RETURN, _ERRNO | number)
