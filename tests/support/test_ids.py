"""Ids sort by the order in which they were created."""

from __future__ import annotations

import threading
import time
from uuid import RFC_4122, UUID

from treadle.support.ids import uuid7


def test_ids_are_version_7_and_carry_their_time() -> None:
    before = time.time_ns() // 1_000_000
    made = UUID(uuid7())
    after = time.time_ns() // 1_000_000

    assert (made.version, made.variant) == (7, RFC_4122)
    # Ids created in a burst run ahead of the clock, by less than a second.
    assert before <= made.int >> 80 <= after + 1000


def test_ids_created_in_a_burst_ascend() -> None:
    made = [uuid7() for _ in range(20_000)]

    assert made == sorted(set(made))


def test_threads_never_get_the_same_id() -> None:
    made: list[str] = []

    def make() -> None:
        made.extend([uuid7() for _ in range(2000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(made)) == 8000
