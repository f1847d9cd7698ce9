"""Limits for commands: their values in the configuration, and their meaning."""

from __future__ import annotations

import pytest

from treadle.sandbox.limits import (
    BadLimit,
    Bounds,
    CommandLimits,
    Reserve,
    default_limits,
    memory_of_machine,
    read_limits,
    shown,
)

GIB = 1024**3


def test_defaults_leave_room_for_real_work() -> None:
    limits = default_limits()

    assert limits.processes is not None
    assert limits.processes >= 4096
    assert limits.memory == memory_of_machine() * 3 // 4
    assert limits.cpu_seconds is None
    assert limits.file_size is None
    assert limits.disk_reserve == Reserve(512 * 1024**2, 20)


@pytest.mark.parametrize("off", [0, "none"])
@pytest.mark.parametrize(
    "key", ["processes", "memory", "cpu_seconds", "open_files", "file_size", "disk_reserve"]
)
def test_each_limit_can_be_turned_off(key: str, off: int | str) -> None:
    assert getattr(read_limits({key: off}), key) is None


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("4GiB", 4 * GIB),
        ("4 gib", 4 * GIB),
        ("1.5MiB", 1_572_864),
        ("2GB", 2_000_000_000),
        ("50%", memory_of_machine() // 2),
    ],
)
def test_sizes_have_units_or_are_shares(value: int | str, size: int) -> None:
    assert read_limits({"memory": value}).memory == size


def test_reserve_is_a_size_or_a_share_of_the_file_system() -> None:
    assert read_limits({"disk_reserve": "1GiB"}).disk_reserve == Reserve(GIB)
    share = read_limits({"disk_reserve": "2.5%"}).disk_reserve
    assert share is not None
    assert share.permille == 25


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("processes", "many"),
        ("processes", -1),
        ("open_files", 3),
        ("memory", "12 parsecs"),
        ("memory", "110%"),
        ("memory", -5),
        ("memory", "9" * 30),
        ("file_size", "10%"),
        ("disk_reserve", "lots"),
        ("nice", 20),
        ("nice", -1),
        ("nice", "very"),
    ],
)
def test_bad_value_is_named_with_its_key_and_what_was_expected(key: str, value: int | str) -> None:
    with pytest.raises(BadLimit) as raised:
        read_limits({key: value})
    assert str(raised.value).startswith(f"sandbox.limits.{key} is {value!r}, expected ")


@pytest.mark.parametrize(
    ("size", "text"), [(500, "500 bytes"), (256 << 20, "256 MiB"), (1536 << 20, "1.5 GiB")]
)
def test_sizes_are_shown_with_units(size: int, text: str) -> None:
    assert shown(size) == text


def test_exit_codes_of_the_kernel_name_a_limit_only_where_there_is_one() -> None:
    assert Bounds(CommandLimits()).reason_of_exit(153) is None
    assert Bounds(CommandLimits(file_size=1024)).reason_of_exit(1) is None
    reason = Bounds(CommandLimits(file_size=1024)).reason_of_exit(153)
    assert reason == "killed: a file larger than 1 KiB (sandbox.limits.file_size)"
