"""The mutations, each with what it leaves true of the verdict."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.variants import names, owners, surroundings, telling
from tests.variants.content import CaseContent


class Keeps(enum.StrEnum):
    """What must stay true."""

    VERDICT = "the verdict follows"
    VERDICT_WITHOUT_LOGS = "the verdict follows where it does not rest on logs; elsewhere nothing is wrong"
    SAFETY = "nothing is wrong"


@dataclass(frozen=True)
class Mutation:
    """A change. `apply` gives None where it does not apply."""

    name: str
    keeps: Keeps
    apply: Callable[[CaseContent, Random], CaseContent | None]


def _same(
    change: Callable[[CaseContent], CaseContent | None],
) -> Callable[[CaseContent, Random], CaseContent | None]:
    """A change that draws nothing."""
    return lambda content, random: change(content)


def _owner(kind: owners.OwnerKind) -> Callable[[CaseContent, Random], CaseContent | None]:
    return lambda content, random: owners.change_owner(content, kind)


def _several(content: CaseContent, random: Random) -> CaseContent:
    """Three preserving changes after another."""
    for mutation in random.sample(COMBINED, 3):
        content = mutation.apply(content, random) or content
    return names.rename(content, random)


COMBINED: Sequence[Mutation] = (
    Mutation("shuffle", Keeps.VERDICT, surroundings.shuffle),
    Mutation("noise", Keeps.VERDICT, surroundings.add_noise),
    Mutation("other-faults", Keeps.VERDICT, surroundings.add_faults),
    Mutation("alert-on-pod", Keeps.VERDICT, _same(telling.alert_on_pod)),
    Mutation("alert-on-owner", Keeps.VERDICT, _same(telling.alert_on_owner)),
    Mutation("alert-in-words", Keeps.VERDICT, _same(telling.alert_in_words)),
    Mutation("logs-as-json", Keeps.VERDICT, _same(telling.logs_as_json)),
    Mutation("shifted", Keeps.VERDICT, telling.shift_times),
    Mutation("catalog", Keeps.VERDICT, names.rename_workflows),
)
MUTATIONS: Sequence[Mutation] = (
    Mutation("renamed", Keeps.VERDICT, names.rename),
    *COMBINED,
    Mutation("several", Keeps.VERDICT, _several),
    Mutation("alert-on-service", Keeps.VERDICT, _same(telling.alert_on_service)),
    Mutation("alert-on-client", Keeps.VERDICT, _same(telling.alert_on_client)),
    Mutation("alert-prometheus", Keeps.VERDICT, _same(telling.alert_of_prometheus)),
    Mutation("alert-event", Keeps.VERDICT, _same(telling.alert_of_event)),
    Mutation("owner-statefulset", Keeps.VERDICT, _owner(owners.STATEFUL_SET)),
    Mutation("owner-daemonset", Keeps.VERDICT, _owner(owners.DAEMON_SET)),
    Mutation("owner-rollout", Keeps.VERDICT, _owner(owners.ROLLOUT)),
    Mutation("owner-custom", Keeps.VERDICT, _owner(owners.CUSTOM)),
    Mutation("logs-prefixed", Keeps.VERDICT, _same(telling.logs_with_prefix)),
    Mutation("stretched", Keeps.VERDICT, telling.stretch_ages),
    Mutation("logs-foreign", Keeps.VERDICT_WITHOUT_LOGS, telling.logs_in_language),
    Mutation("no-logs", Keeps.SAFETY, _same(telling.without_logs)),
    Mutation("no-events", Keeps.SAFETY, _same(telling.without_events)),
)
