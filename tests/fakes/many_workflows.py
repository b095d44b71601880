"""A catalog of any size: workflows of the corpus again and again, each for other incidents."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from worker.domain.values.workflows import SelectionContext, Workflow

ENVIRONMENTS = ("production", "staging", "development", "test", "*")
PRIORITIES = ("P0", "P1", "P2", "P3", "*")
DETECTED: tuple[dict[str, str | bool], ...] = (
    {},
    {},
    {"stateful": True},
    {"gitops_tool": "argocd"},
    {"gitops_managed": True},
    {"service_mesh": "istio", "pdb_protected": True},
)
TEAMS = ("payments", "search", "data", "*")


def many_workflows(some: Iterable[Workflow], count: int, seed: int = 1) -> list[Workflow]:
    """`count` workflows made of `some`, the same ones for the same seed."""
    chance, known = random.Random(seed), list(some)
    return [
        replace(
            origin := known[n % len(known)],
            workflow_id=f"{origin.workflow_id}-{n}",
            title=f"{origin.title} variant {n}",
            labels={
                **origin.labels,
                "environment": tuple(chance.sample(ENVIRONMENTS, chance.randint(1, 2))),
                "priority": tuple(chance.sample(PRIORITIES, chance.randint(1, 3))),
            },
            detected_labels=chance.choice(DETECTED),
            custom_labels={"team": (chance.choice(TEAMS),)} if chance.random() < 0.5 else {},
        )
        for n in range(count)
    ]


def some_contexts(count: int, seed: int = 1) -> list[SelectionContext]:
    """Incidents as they come, all with a target."""
    chance = random.Random(seed)
    return [
        SelectionContext(
            environment=chance.choice(ENVIRONMENTS[:4]),
            priority=chance.choice(PRIORITIES[:4]),
            severity=chance.choice(("critical", "high", "medium", "low")),
            signal_type=chance.choice(("CrashLoopBackOff", "OOMKilled", "NodeNotReady", "FailedScheduling")),
            components=chance.choice(
                (
                    (("v1", "Pod"), ("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment")),
                    (("apps/v1", "StatefulSet"),),
                    (("v1", "Node"),),
                )
            ),
            detected_labels={
                "gitops_managed": chance.random() < 0.3,
                "gitops_tool": chance.choice(("", "argocd", "flux")),
                "stateful": chance.choice((True, False, None)),
                "service_mesh": chance.choice(("", "istio")),
            },
            custom_labels={"team": [chance.choice(TEAMS[:3])]},
        )
        for _ in range(count)
    ]
