"""The adapter: evaluates WINK prompts with an app-server."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from weakincentives import Budget, BudgetTracker, Deadline
from weakincentives.adapters import PromptResponse, ProviderAdapter
from weakincentives.prompt import Prompt
from weakincentives.runtime import Heartbeat, RunContext, SessionProtocol

from treadle.client.events import Event
from treadle.wink.config import CodexAppServerClientConfig, CodexAppServerModelConfig
from treadle.wink.context import ADAPTER_NAME
from treadle.wink.evaluation import EvaluateOptions, Evaluation
from treadle.wink.pool import Pool
from treadle.wink.prompt_run import PromptRun
from treadle.wink.spec import EvaluationSpec
from treadle.wink.turn import RunningTurn

OutputT = TypeVar("OutputT")


class CodexAppServerAdapter(ProviderAdapter):
    """Evaluates prompts with `codex app-server`, `treadle app-server` or another one.

    The server is started with the first prompt and kept for the next, until `close` or the end of
    a `with` block. `on_event` is called for everything that is told of the turns, `on_turn` with
    each turn that begins; both on a thread of their own.
    """

    def __init__(
        self,
        *,
        model_config: CodexAppServerModelConfig | None = None,
        client_config: CodexAppServerClientConfig | None = None,
        on_event: Callable[[Event], object] | None = None,
        on_turn: Callable[[RunningTurn], object] | None = None,
    ) -> None:
        self._model = model_config or CodexAppServerModelConfig()
        self._config = client_config or CodexAppServerClientConfig()
        self._on_event = on_event
        self._on_turn = on_turn
        self._pool = Pool(self._config)
        # Whoever forgets to close the adapter does not leave its servers behind.
        weakref.finalize(self, self._pool.close)

    @property
    def adapter_name(self) -> str:
        """The name that events carry."""
        return ADAPTER_NAME

    def close(self) -> None:
        """End the servers; the next prompt would start one anew."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
    ) -> PromptResponse[OutputT]:
        """Evaluate a prompt and wait for it, also where a loop runs already.

        Raises:
            PromptEvaluationError: it failed; `phase` and `provider_payload` say how.
            VisibilityExpansionRequired: a tool wants the prompt to be rendered anew.
        """
        wishes = EvaluateOptions(
            session=session,
            deadline=deadline,
            budget=budget,
            budget_tracker=budget_tracker,
            heartbeat=heartbeat,
            run_context=run_context,
        )
        call = Evaluation(self, prompt, wishes)
        evaluation = self._evaluation(call)
        with call.resources():
            future = self._pool.submit(evaluation)
            try:
                outcome = future.result()
            except BaseException:
                future.cancel()  # whoever waits may have been interrupted
                raise
        return call.respond(outcome)

    async def evaluate_async(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
        budget_tracker: BudgetTracker | None = None,
        heartbeat: Heartbeat | None = None,
        run_context: RunContext | None = None,
    ) -> PromptResponse[OutputT]:
        """Do the same without holding up the caller's loop; cancelling it stops the turn."""
        wishes = EvaluateOptions(
            session=session,
            deadline=deadline,
            budget=budget,
            budget_tracker=budget_tracker,
            heartbeat=heartbeat,
            run_context=run_context,
        )
        call = Evaluation(self, prompt, wishes)
        evaluation = self._evaluation(call)
        with call.resources():
            outcome = await asyncio.wrap_future(self._pool.submit(evaluation))
        return call.respond(outcome)

    def _evaluation(self, call: Evaluation[OutputT]) -> PromptRun:
        cwd, fingerprint = call.place(self._config)
        order = EvaluationSpec(
            config=self._config,
            model=self._model,
            cwd=cwd,
            workspace_fingerprint=fingerprint,
            output_schema=call.output_schema(),
            skills=call.skills(),
            tracker=call.tracker,
            on_event=self._on_event,
            on_turn=self._on_turn,
        )
        return PromptRun(call.scene, order, call.rendered, self._pool.loop)
