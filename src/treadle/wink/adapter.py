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
    a `with` block. `on_event` is called for every event of the turns, `on_turn` with each turn
    that starts; both on a separate thread.
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
        # Ends the servers of an adapter that was not closed.
        weakref.finalize(self, self._pool.close)

    @property
    def adapter_name(self) -> str:
        """The adapter's name in events."""
        return ADAPTER_NAME

    def close(self) -> None:
        """End the servers; the next prompt starts a new one."""
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
        """Evaluate a prompt and wait for it; this also works inside a running event loop.

        Raises:
            PromptEvaluationError: it failed; `phase` and `provider_payload` have the details.
            VisibilityExpansionRequired: a tool requests another rendering of the prompt.
        """
        options = EvaluateOptions(
            session=session,
            deadline=deadline,
            budget=budget,
            budget_tracker=budget_tracker,
            heartbeat=heartbeat,
            run_context=run_context,
        )
        evaluation = Evaluation(self, prompt, options)
        run = self._prompt_run(evaluation)
        with evaluation.resources():
            future = self._pool.submit(run)
            try:
                outcome = future.result()
            except BaseException:
                future.cancel()  # the caller may have been interrupted
                raise
        return evaluation.respond(outcome)

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
        """Evaluate a prompt without blocking the caller's loop; cancelling stops the turn."""
        options = EvaluateOptions(
            session=session,
            deadline=deadline,
            budget=budget,
            budget_tracker=budget_tracker,
            heartbeat=heartbeat,
            run_context=run_context,
        )
        evaluation = Evaluation(self, prompt, options)
        run = self._prompt_run(evaluation)
        with evaluation.resources():
            outcome = await asyncio.wrap_future(self._pool.submit(run))
        return evaluation.respond(outcome)

    def _prompt_run(self, evaluation: Evaluation[OutputT]) -> PromptRun:
        cwd, fingerprint = evaluation.place(self._config)
        spec = EvaluationSpec(
            config=self._config,
            model=self._model,
            cwd=cwd,
            workspace_fingerprint=fingerprint,
            output_schema=evaluation.output_schema(),
            skills=evaluation.skills(),
            tracker=evaluation.tracker,
            on_event=self._on_event,
            on_turn=self._on_turn,
        )
        return PromptRun(evaluation.context, spec, evaluation.rendered, self._pool.loop)
