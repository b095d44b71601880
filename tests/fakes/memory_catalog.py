"""The Catalog port as the plainest reading of its rules: a walk over a list, workflow by workflow.

Catalogs that are arranged for speed must answer alike. Also the workflows the tests are made of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from worker.domain.catalog.search import match_quality
from worker.domain.catalog.selection import (
    CUSTOM,
    DETECTED,
    cursor_after,
    declared,
    for_final_choice,
    is_gitops_managed,
    known,
    mismatches,
    target_keys,
    workflow_id_of,
)
from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflow_search import Match, SearchPage, SearchQuery
from worker.domain.values.workflows import (
    LABELS,
    WILDCARD,
    ActionSummary,
    ActionText,
    Parameter,
    SelectionContext,
    Workflow,
    WorkflowPage,
)

PAGE_SIZE = 10
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class MemoryCatalog:
    """The Catalog port over a list. `down` makes every method raise CatalogUnavailable."""

    def __init__(
        self, workflows: Iterable[Workflow], actions: Mapping[str, ActionText] | None = None
    ) -> None:
        self.all = list(workflows)
        self.texts = dict(actions or {})
        self.down = False

    async def actions(self, context: SelectionContext) -> Sequence[ActionSummary]:
        fitting = [w for w in self._up() if not mismatches(w, context)]
        found = []
        for name in sorted({w.action_type for w in fitting}):
            same = [w for w in fitting if w.action_type == name]
            signals = {s for w in same for s in w.labels.get("signal_type", ())} - {WILDCARD}
            order = [
                s
                for w in sorted(self.all, key=lambda w: w.workflow_id)
                for s in w.labels.get("signal_type", ())
            ]
            spelt = tuple(s for s in dict.fromkeys(order) if s in signals)
            found.append(ActionSummary(name, self.texts.get(name, ActionText()), len(same), spelt))
        return found

    async def workflows(self, action_type: str, context: SelectionContext, cursor: str = "") -> WorkflowPage:
        same = [w for w in self._up() if w.action_type.lower() == action_type.strip().lower()]
        order = sorted((w for w in same if not mismatches(w, context)), key=lambda w: rank(w, context))
        after = workflow_id_of(cursor)
        start = next((n + 1 for n, w in enumerate(order) if w.workflow_id == after), 0)
        shown = order[start : start + PAGE_SIZE]
        more = start + PAGE_SIZE < len(order)
        cursor = cursor_after(shown[-1].workflow_id) if more else ""
        return WorkflowPage(tuple(shown), cursor, exclusions(same, context))

    async def get(self, workflow_id: str, context: SelectionContext) -> Workflow | None:
        fitting = (w for w in self._up() if not mismatches(w, for_final_choice(context)))
        return next((w for w in fitting if w.workflow_id == workflow_id.strip()), None)

    async def search(self, query: SearchQuery, context: SelectionContext) -> SearchPage:
        context = query.applied_to(context)
        fitting = [w for w in self._up() if not mismatches(w, context)]
        scores = self.text_scores(query, [w.workflow_id for w in fitting])
        merits = {
            w.workflow_id: (*rank(w, context)[:3], -scores.get(w.workflow_id, 0)) for w in fitting
        }  # the smaller one is better
        tiers: dict[int, list[Workflow]] = {}
        for w in fitting:
            tiers.setdefault(exactness(w, context), []).append(w)
        found: list[Match] = []
        for exact, tier in tiers.items():
            for w in tier:
                better = sum(merits[v.workflow_id] < merits[w.workflow_id] for v in tier)
                found.append(Match(w, match_quality(exact, better, len(tier))))
        found.sort(key=lambda match: (merits[match.workflow.workflow_id], match.workflow.workflow_id))
        good = [match for match in found if match.confidence >= query.min_confidence]
        alone = Counter(out[0].label for w in self.all if len(out := mismatches(w, context)) == 1)
        return SearchPage(
            tuple(good[: query.max_results]),
            len(good),
            len(found) - len(good),
            exclusions(self.all, context),
            dict(alone),
        )

    def text_scores(self, query: SearchQuery, ids: Iterable[str]) -> dict[str, float]:
        """Words shared with the query, by id."""
        words, wanted = split_words(str(query)), set(ids)
        counts = {
            w.workflow_id: len(words & split_words(_text(w))) for w in self.all if w.workflow_id in wanted
        }
        return {name: float(count) for name, count in counts.items() if count}

    def _up(self) -> list[Workflow]:
        if self.down:
            raise CatalogUnavailable("the catalog is down")
        return self.all


def rank(workflow: Workflow, context: SelectionContext) -> tuple[int, int, int, str]:
    """Smaller is better: GitOps, exact labels (those of the cause eightfold, the target itself once more), others, id."""
    said, values = declared(workflow), known(context)
    exact = sum(
        (8 if name in {"signal_type", "severity"} else 1)
        for name in LABELS
        if name in said and name in values and said[name].keys & values[name]
    )
    exact += "component" in said and bool(said["component"].keys & target_keys(context))
    fit = 0
    for name in values:
        if name in said and name.startswith((DETECTED, CUSTOM)):
            fit += 1 if said[name].wild else 2 if said[name].keys & values[name] else -2
    aware = is_gitops_managed(context) and workflow.gitops_aware
    return -int(aware), -exact, -fit, workflow.workflow_id


def exactness(workflow: Workflow, context: SelectionContext) -> int:
    """How many of signal type and severity it declares exactly."""
    said, values = declared(workflow), known(context)
    causes = [n for n in ("signal_type", "severity") if n in said and n in values]
    return sum(bool(said[n].keys & values[n]) for n in causes)


def exclusions(workflows: Iterable[Workflow], context: SelectionContext) -> dict[str, int]:
    """How many workflows each label leaves out. One workflow may count under several labels."""
    return dict(Counter(m.label for w in workflows for m in mismatches(w, context)))


def split_words(text: str) -> set[str]:
    """Words in lower case, CamelCase ones also in their parts."""
    return set(re.findall(r"[a-z0-9]+", f"{text} {HUMP.sub(' ', text)}".lower()))


def _text(workflow: Workflow) -> str:
    return f"{' '.join(workflow.labels.get('signal_type', ()))} {workflow.title} {workflow.description}"


def target_parameters(*kinds: str) -> tuple[Parameter, ...]:
    """Name, kind and namespace of the target, as most workflows declare them."""
    return (
        Parameter("TARGET_RESOURCE_NAME", required=True, pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"),
        Parameter("TARGET_RESOURCE_KIND", required=True, enum=kinds),
        Parameter(
            "TARGET_RESOURCE_NAMESPACE", required=True, pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
        ),
    )


def labels(**values: str | Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Labels of a workflow; one text is a list of one."""
    return {name: (value,) if isinstance(value, str) else tuple(value) for name, value in values.items()}


def workflow(
    workflow_id: str = "restart-v1", action_type: str = "RestartWorkload", **fields: Any
) -> Workflow:
    """A workflow for Deployments in production."""
    values: dict[str, Any] = {
        "version": "1.2.0",
        "labels": labels(
            signal_type="CrashLoopBackOff",
            severity=["critical", "high"],
            component="apps/v1/Deployment",
            environment="production",
            priority="*",
        ),
        "parameters": target_parameters("Deployment"),
        "container_image": "registry.example.com/restart@sha256:00ff",
    }
    return Workflow(workflow_id, action_type, **{**values, **fields})
