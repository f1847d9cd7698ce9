"""A turn that runs, for those who want to steer or stop it."""

from __future__ import annotations

from typing import Final

from treadle.client.turn import AsyncTurn
from treadle.wink.loop import LoopThread

_SECONDS: Final = 30.0


class RunningTurn:
    """The turn that works on a prompt; its methods may be called from any thread."""

    def __init__(self, loop: LoopThread, turn: AsyncTurn) -> None:
        self._loop = loop
        self._turn = turn
        self.thread_id = turn.thread_id
        self.id = turn.id

    def steer(self, text: str) -> None:
        """Give the agent more to consider.

        Raises:
            ClientError: the server refuses, for example as the turn is over.
        """
        self._loop.submit(self._turn.steer(text)).result(_SECONDS)

    def interrupt(self) -> None:
        """Stop it; the evaluation ends with an error.

        Raises:
            ClientError: the server refuses.
        """
        self._loop.submit(self._turn.interrupt()).result(_SECONDS)
