"""A handle to a running turn, for steering and interrupting it."""

from __future__ import annotations

from typing import Final

from treadle.client.turn import AsyncTurn
from treadle.wink.loop import LoopThread

_SECONDS: Final = 30.0


class RunningTurn:
    """The turn that evaluates a prompt; its methods may be called from any thread."""

    def __init__(self, loop: LoopThread, turn: AsyncTurn) -> None:
        self._loop = loop
        self._turn = turn
        self.thread_id = turn.thread_id
        self.id = turn.id

    def steer(self, text: str) -> None:
        """Add input to the turn.

        Raises:
            ClientError: the server refuses, for example because the turn is over.
        """
        self._loop.submit(self._turn.steer(text)).result(_SECONDS)

    def interrupt(self) -> None:
        """Interrupt the turn; the evaluation ends with an error.

        Raises:
            ClientError: the server refuses.
        """
        self._loop.submit(self._turn.interrupt()).result(_SECONDS)
