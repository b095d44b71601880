"""From settings to the rules of the domain."""

from __future__ import annotations

from worker.app.settings.environment import Settings
from worker.domain.analyse import Rules
from worker.domain.investigation.models.tries import TryRule
from worker.domain.values.limits import Limits


def analysis_rules(settings: Settings) -> Rules:
    """The limits of one analysis, and the thresholds for its answer."""
    llm, worker = settings.llm, settings.worker
    return Rules(
        limits=Limits(
            llm_calls=llm.max_calls,
            tool_calls=llm.max_tool_calls,
            input_tokens=llm.max_input_tokens,
            cost_usd=llm.max_cost_usd,
            wall_seconds=llm.max_seconds,
            call_seconds=llm.call_seconds,
            window_tokens=llm.context_tokens - llm.answer_tokens if llm.context_tokens else None,
        ),
        tries=TryRule(llm.max_tries, llm.retry_seconds),
        enrichment_seconds=settings.kubernetes.enrichment_seconds,
        min_confidence=worker.min_confidence,
        confidence_threshold=settings.policy.confidence_threshold,
        signal_types=frozenset(worker.signal_types),
        observe=settings.policy.mode == "observe",
    )
