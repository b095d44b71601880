"""Runs rules against a cluster: reads what they ask for, within a budget, until no question is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from worker.domain.cluster.events import MAX_EVENTS, event_facts
from worker.domain.cluster.fields import without_managers
from worker.domain.cluster.kinds import is_secret
from worker.domain.cluster.rendering.logs import clean_lines
from worker.domain.diagnosis.facts import LOG, ClusterFacts, Presence, Question, ReadResult
from worker.domain.values.concurrency import concurrently
from worker.domain.values.errors import ClusterError, ClusterReason
from worker.domain.values.objects import Keep, Listing, ListQuery, LogQuery, ObjectRef
from worker.domain.values.ports import Cluster

KEPT: Mapping[str, Keep] = {"Event": event_facts, "Pod": without_managers}
"""The fields that rules read of kinds with possibly thousands of objects."""
Conclusion = TypeVar("Conclusion")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one investigation by rules. Facts that are not read within them stay unknown."""

    reads: int = 15
    seconds: float = 2.0
    page: int = 500


@dataclass(frozen=True, slots=True)
class Investigator:
    """Answers the open questions of a store from the Cluster port."""

    cluster: Cluster
    budget: Budget = Budget()

    async def conclude(self, facts: ClusterFacts, rules: Callable[[ClusterFacts], Conclusion]) -> Conclusion:
        """The conclusion once no question is open or the budget is spent. Never raises ClusterError."""
        conclusion = rules(facts)
        left = self.budget.reads
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.budget.seconds):
                while facts.open and left > 0:
                    batch = list(facts.open)[:left]
                    left -= len(batch)
                    facts.open.clear()
                    await concurrently([self._answer(facts, question) for question in batch])
                    conclusion = rules(facts)
                return conclusion
        return rules(facts)

    async def _answer(self, facts: ClusterFacts, question: Question) -> None:
        facts.answer({question: await self._read(question)})

    async def _read(self, question: Question) -> ReadResult:
        if is_secret(question.kind):
            return Presence.UNKNOWN
        try:
            if question.kind == LOG:
                run = (question.namespace, question.name, question.container)
                query = LogQuery(*run, previous=question.previous)
                return tuple(clean_lines(await self.cluster.logs(query)))
            if question.name:
                named = (question.kind, question.name, question.namespace, question.api_version)
                return await self.cluster.get(ObjectRef(*named))
            return await self._list(question)
        except ClusterError as error:
            if error.reason is ClusterReason.UNKNOWN_KIND and not question.name:
                return Listing(())
            absent = {ClusterReason.NOT_FOUND, ClusterReason.UNKNOWN_KIND}
            return Presence.ABSENT if error.reason in absent else Presence.UNKNOWN

    async def _list(self, question: Question) -> Listing:
        kind, limit = question.kind, MAX_EVENTS if question.kind == "Event" else self.budget.page
        selector, keep = _selector(question), KEPT.get(kind)
        place = (kind, question.namespace, question.api_version)
        query = ListQuery(*place, field_selector=selector, limit=limit, keep=keep)
        return await self.cluster.list(query)


def _selector(question: Question) -> str:
    kind, _, name = question.about.partition("/")
    if name:
        return f"involvedObject.kind={kind},involvedObject.name={name}"
    return f"spec.nodeName={question.node}" if question.node else ""
