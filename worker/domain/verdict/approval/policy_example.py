"""An example input of a policy, and how another document differs from a real input."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.analysis import AffectedResource, Corroboration, CorroborationSource, ParameterOrigin
from schemas.enrichment import DETECTED_LABELS, DetectedLabels, camel_case
from schemas.taxonomy import Severity
from worker.domain.values.objects import ObjectRef
from worker.domain.values.remediations import TrackRecord
from worker.domain.verdict.approval.policy import PolicyFacts, policy_input

EXAMPLE = PolicyFacts(
    affected=ObjectRef("Deployment", "api", "shop", "apps/v1"),
    target=ObjectRef("Pod", "api-7d9f8b6c5-x2x4z", "shop", "v1"),
    acted_on=ObjectRef("Deployment", "api", "shop", "apps/v1"),
    environment="production",
    priority="P1",
    severity=Severity.HIGH,
    signal_type="OOMKilled",
    action_type="RestartDeployment",
    confidence=0.93,
    confidence_threshold=0.8,
    detected_labels=DetectedLabels(pdb_protected=True, failed_detections=("hpaEnabled",)),
    custom_labels={"team": ("payments",)},
    warnings=("the memory limit was raised an hour ago",),
    estimated_downtime_seconds=10,
    estimated_risk="low",
    declared_risk="low",
    corroboration=Corroboration(
        by=CorroborationSource.RULES,
        object=AffectedResource(kind="Deployment", name="api", namespace="shop", api_version="apps/v1"),
        finding="stale_configuration",
        reason="The containers of Deployment shop/api started before ConfigMap shop/api changed.",
    ),
    parameter_origins={"TARGET_RESOURCE_NAME": ParameterOrigin.CODE},
    track_record=TrackRecord(proposed=14, succeeded=12, failed=1),
)
RECORD = frozenset(f"track_record.{name}" for name in ("proposed", "succeeded", "failed"))
SOMETIMES = RECORD | {"estimated_downtime_seconds", "action.estimated_downtime_seconds"}
"""Left out when unknown; the whole `track_record` is then null."""
OPEN_MAPS = frozenset({"custom_labels", "parameter_origins"})
"""May have any key."""
LABELS = "detected_labels"
"""Has only the labels that are known, each in both spellings."""


def example_input() -> dict[str, Any]:
    """The `input` for a restart in production."""
    return policy_input(EXAMPLE)


def unknown_fields(document: Mapping[str, Any]) -> list[str]:
    """Fields that no input has, each with the field that may have been meant."""
    known = [*_paths(example_input()), *(f"{LABELS}.{name}" for name in _label_names())]
    return [_suspected(path, known) for path in _paths(document) if path not in known]


def missing_fields(document: Mapping[str, Any]) -> list[str]:
    """Fields that every input has and the document lacks; of a missing object, only the object itself."""
    there = set(_paths(document))
    wanted = (path for path in _paths(example_input()) if not path.startswith(f"{LABELS}."))
    missing = [path for path in wanted if path not in there | SOMETIMES]
    return [path for path in missing if path.rpartition(".")[0] not in missing]


def _paths(document: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in document.items():
        path = f"{above}{name}"
        yield path
        if isinstance(value, dict) and path not in OPEN_MAPS:
            yield from _paths(value, f"{path}.")


def _label_names() -> Iterator[str]:
    for name in DETECTED_LABELS:
        yield name
        yield camel_case(name)


def _suspected(path: str, known: list[str]) -> str:
    near = difflib.get_close_matches(path, known, n=1)
    return f"{path} (did you mean {near[0]}?)" if near else path
