"""What the shipped policy lets pass, in staging and in production: `python -m tests.eval_gate [--all]`.

Every answer goes through the whole pipeline: right answers of the cases, wrong ones without any planted text (every tenth, or
`--all`), answers to incidents that are over, and what an obeying model answers to each planted text.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from tests.eval_corroboration import Case, cases
from tests.fakes.rego import PATIENT
from tests.gate.answers import Claimed, right_answers, wrong_answers
from tests.gate.planting import pick, plant, planted
from tests.gate.recovered import recover
from tests.gate.run import ENVIRONMENTS, Judged, Scene, judge, lenient_catalog
from worker.adapters.rego_policy import RegorusPolicy, read_files

STEP = 10
BY_SPEC = {"CronJob", "NetworkPolicy", "Service"}
"""What is wrong with these stands in their spec: it is not over while the spec is as it is."""
RIGHT, WRONG, OVER, PLANTED = (
    "right answers",
    "wrong answers",
    "right answers, when it is over",
    "planted texts obeyed",
)


@dataclass(frozen=True)
class Tried:
    """One answer in one environment, and what became of it. `about` names it, `place` and `language` are those of a text."""

    group: str
    environment: str
    about: str
    judged: Judged
    place: str = ""
    language: str = ""
    told: str = ""


@dataclass
class GateEvaluation:
    """Everything that was tried."""

    tried: list[Tried] = field(default_factory=list)

    def of(self, group: str, environment: str = "") -> list[Tried]:
        return [t for t in self.tried if t.group == group and environment in {"", t.environment}]

    def passed(self, group: str, environment: str = "") -> list[Tried]:
        return [t for t in self.of(group, environment) if t.judged.passed]


@dataclass
class GateRun:
    """The incidents with the answers about them, and the policy that decides."""

    policy: RegorusPolicy

    def __post_init__(self) -> None:
        self.catalog = lenient_catalog()
        self.cases = list(cases(self.catalog))
        self.wrong = {case.name: list(wrong_answers(case, self.catalog)) for case in self.cases}
        self.right = {case.name: next(right_answers(case, self.catalog), None) for case in self.cases}

    async def judge(self, scene: Scene, claimed: Claimed, environment: str) -> Judged:
        return await judge(scene, claimed, environment, self.catalog, self.policy)

    async def right_ones(self, environments: Sequence[str] = ENVIRONMENTS) -> AsyncIterator[Tried]:
        for environment in environments:
            for case, claimed in self._right():
                judged = await self.judge(Scene.of(case), claimed, environment)
                yield Tried(RIGHT, environment, _name(case, claimed), judged)

    async def late_ones(self, environments: Sequence[str] = ENVIRONMENTS) -> AsyncIterator[Tried]:
        for environment in environments:
            for case, claimed in self._right():
                if case.acceptable[0].kind in BY_SPEC:
                    continue
                judged = await self.judge(recover(Scene.of(case)), claimed, environment)
                yield Tried(OVER, environment, _name(case, claimed), judged)

    async def wrong_ones(self, step: int = STEP) -> AsyncIterator[Tried]:
        found = [(case, claimed) for case in self.cases for claimed in self.wrong[case.name]]
        for environment in ENVIRONMENTS:
            for case, claimed in found[::step]:
                judged = await self.judge(Scene.of(case), claimed, environment)
                yield Tried(WRONG, environment, _name(case, claimed), judged)

    async def planted_ones(self) -> AsyncIterator[Tried]:
        for text in planted():
            case, claimed = pick(text, self.cases, self.wrong)
            for environment in ENVIRONMENTS:
                told = text.about(claimed)
                judged = await self.judge(plant(Scene.of(case), text.place, told), claimed, environment)
                about = f"{text.number} {_name(case, claimed)}"
                yield Tried(PLANTED, environment, about, judged, text.place, text.language, told)

    def _right(self) -> list[tuple[Case, Claimed]]:
        return [(case, claimed) for case in self.cases if (claimed := self.right[case.name])]


def _name(case: Case, claimed: Claimed) -> str:
    parts = (
        claimed.kind,
        str(claimed.object),
        claimed.workflow or claimed.outcome,
        str(dict(claimed.parameters) or ""),
    )
    return f"{case.name}: {' '.join(filter(None, parts))}"


async def evaluate(step: int = STEP) -> GateEvaluation:
    """Try everything; of the wrong answers each `step`th."""
    found = GateEvaluation()
    async with RegorusPolicy(read_files, PATIENT) as policy:
        run = GateRun(policy)
        for tries in (run.right_ones(), run.wrong_ones(step), run.late_ones(), run.planted_ones()):
            found.tried += [tried async for tried in tries]
    return found


def main() -> None:
    found = asyncio.run(evaluate(1 if "--all" in sys.argv else STEP))
    print("passed without a human            staging     production")
    for group in (RIGHT, WRONG, OVER, PLANTED):
        shares = [f"{len(found.passed(group, e)):4} of {len(found.of(group, e)):4}" for e in ENVIRONMENTS]
        print(f"{group:32}  {shares[0]}  {shares[1]}")
    confirmed = [t for t in found.of(RIGHT) if t.judged.confirmed]
    shares = [
        f"{sum(t.judged.passed for t in confirmed if t.environment == e):4} of {len(confirmed) // 2:4}"
        for e in ENVIRONMENTS
    ]
    print(f"{'  right ones that rules confirm':32}  {shares[0]}  {shares[1]}")
    print(f"\nplanted: {dict(Counter(t.language for t in found.of(PLANTED, 'staging')))}")
    print(f"         {dict(Counter(t.place for t in found.of(PLANTED, 'staging')))}")
    for environment in ENVIRONMENTS:
        why = Counter(t.judged.why for t in found.of(RIGHT, environment) if not t.judged.passed)
        print(f"\nright answers that need a human in {environment}:")
        for reason, count in why.most_common():
            print(f"  {count:3} {reason}")
    for tried in [t for group in (WRONG, OVER, PLANTED) for t in found.passed(group)]:
        print(f"PASSED {tried.environment} {tried.about}")


if __name__ == "__main__":
    main()
