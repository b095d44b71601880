"""The chain of language models that a worker calls, and the model of the second view."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog

from worker.adapters.pydantic_ai import ModelUnusable, PydanticAIModel
from worker.app.settings.environment import Settings, blamed_on
from worker.domain.investigation.models.chain import ModelChain, ModelNotice, provider_of
from worker.domain.values.breaker import BreakerRule
from worker.domain.values.ports import Clock, Model

log = structlog.stdlib.get_logger(__name__)


Wrap = Callable[[Model], Model]


def open_models(
    settings: Settings, clock: Clock, stack: AsyncExitStack, wrap: Wrap = lambda model: model
) -> ModelChain:
    """The model of the settings and its fallbacks, closed with the stack. Raises ConfigurationError.

    `wrap` is given each of them.
    """
    llm = settings.llm
    chain: list[Model] = []
    for name in (llm.model, *llm.fallbacks):
        same = provider_of(name) == provider_of(llm.model)
        with blamed_on("RCA_LLM__FALLBACKS" if chain else "RCA_LLM__MODEL", ModelUnusable):
            model = PydanticAIModel(
                name,
                base_url=llm.base_url or None if same else None,
                api_key=llm.api_key.get_secret_value() or None if same else None,
                max_output_tokens=llm.answer_tokens,
                silence_seconds=llm.silence_seconds if llm.stream else None,
            )
        stack.push_async_callback(model.close)
        chain.append(wrap(model))
    rule = BreakerRule(
        llm.breaker_failures, llm.breaker_seconds, 8 * llm.breaker_seconds, settings.worker.probe_seconds
    )
    return ModelChain(chain, clock, rule=rule, max_concurrent=llm.max_concurrent, notice=_tell)


def open_shadow(
    settings: Settings, clock: Clock, stack: AsyncExitStack, wrap: Wrap = lambda model: model
) -> ModelChain | None:
    """The model of the second view, closed with the stack; None if none is named. Raises ConfigurationError."""
    shadow, llm = settings.shadow, settings.llm
    if not shadow.model:
        return None
    same = provider_of(shadow.model) == provider_of(llm.model) and shadow.base_url in {"", llm.base_url}
    access = llm if same else shadow  # the key of one server must not be sent to another
    with blamed_on("RCA_SHADOW__MODEL", ModelUnusable):
        model = PydanticAIModel(
            shadow.model,
            base_url=access.base_url or None,
            api_key=shadow.api_key.get_secret_value() or access.api_key.get_secret_value() or None,
            max_output_tokens=llm.answer_tokens,
        )
    stack.push_async_callback(model.close)
    rule = BreakerRule(llm.breaker_failures, llm.breaker_seconds, 8 * llm.breaker_seconds)
    return ModelChain([wrap(model)], clock, rule=rule, max_concurrent=llm.max_concurrent, notice=_tell)


def _tell(notice: ModelNotice) -> None:
    if notice.pause_seconds:
        log.warning(
            "model_paused", model=notice.model, seconds=round(notice.pause_seconds, 1), error=notice.why
        )
    else:
        log.info("model_resumed", model=notice.model)
