"""Facts about the resource of a signal, besides the signal itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AliasChoices, AliasGenerator, ConfigDict, Field, StringConstraints
from pydantic.functional_validators import model_validator
from pydantic_core import PydanticCustomError

from schemas.fields import MAX_ITEMS, AtMost, Flag, Fraction, Message, ShortText, Unused, accepted_names

LabelName = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=128)]


def camel_case(label: str) -> str:
    """The spelling of messages and Kubernaut documents for a detected label in either spelling."""
    words = label.replace("gitops", "git_ops").split("_")
    return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


def snake_case(label: str) -> str:
    """The spelling of filters and the flat catalog for a detected label in either spelling."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", label).lower().replace("git_ops", "gitops")


class TwoSpellings(Message):
    """A message whose fields may be written in camelCase or in snake_case, each of them once."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(
            validation_alias=lambda name: AliasChoices(camel_case(name), name), serialization_alias=camel_case
        )
    )

    @model_validator(mode="before")
    @classmethod
    def _spelt_once(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for name, field in cls.model_fields.items():
                spelt = [key for key in dict.fromkeys(accepted_names(name, field)) if key in data]
                if len(spelt) > 1:
                    raise PydanticCustomError(
                        "spelt_twice", "only one of {keys}", {"keys": " and ".join(spelt)}
                    )
        return data


class DetectedLabels(TwoSpellings):
    """Cluster characteristics, read from the cluster (DD-WORKFLOW-001). snake_case is accepted as well.

    An absent boolean is false and an absent string is empty, unless `failedDetections` names it: then the
    detection did not work and the value is unknown. `null` is unknown too.
    """

    gitops_managed: Flag = False
    """Managed by Argo CD or Flux."""
    gitops_tool: ShortText = ""
    """`argocd`, `flux`, or empty."""
    pdb_protected: Flag = False
    """A PodDisruptionBudget selects its pods."""
    hpa_enabled: Flag = False
    """A HorizontalPodAutoscaler scales it."""
    stateful: Flag = False
    """A StatefulSet, or something that belongs to one."""
    helm_managed: Flag = False
    """Installed by Helm."""
    network_isolated: Flag = False
    """A NetworkPolicy restricts its traffic."""
    pod_security_level: ShortText = ""
    """`privileged`, `baseline`, `restricted`, or empty."""
    service_mesh: ShortText = ""
    """`istio`, `linkerd`, or empty."""
    resource_quota_constrained: Flag = False
    """A ResourceQuota limits what its namespace may use."""
    failed_detections: Annotated[tuple[LabelName, ...], AtMost(MAX_ITEMS)] = ()
    """Labels (camelCase) whose detection failed: their values are unknown."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_unknown(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        unknown = [
            key for key, value in data.items() if value is None and snake_case(str(key)) in DETECTED_LABELS
        ]
        named = data.get("failedDetections", data.get("failed_detections")) or []
        if not unknown or not isinstance(named, (list, tuple)):
            return data
        kept = {k: v for k, v in data.items() if snake_case(str(k)) != "failed_detections"}
        return kept | {"failedDetections": [*named, *unknown]}

    @model_validator(mode="after")
    def _one_spelling(self) -> DetectedLabels:
        spelt = tuple(dict.fromkeys(camel_case(name) for name in self.failed_detections))
        if spelt != self.failed_detections:
            object.__setattr__(self, "failed_detections", spelt)
        return self

    def is_unknown(self, label: str) -> bool:
        """True if nothing is known about the label: its detection failed, or there is no such detection."""
        return snake_case(label) not in DETECTED_LABELS or camel_case(label) in self.failed_detections

    def flag(self, label: str) -> bool | None:
        """True if the label (either spelling) is set, None if unknown.

        A string label is set when it has a value.
        """
        return None if self.is_unknown(label) else bool(getattr(self, snake_case(label)))

    def text(self, label: str) -> str | None:
        """The value of a string label (either spelling), empty if there is none; None when unknown."""
        if self.is_unknown(label):
            return None
        value = getattr(self, snake_case(label))
        return value if isinstance(value, str) else str(value).lower()


DETECTED_LABELS: Final = tuple(name for name in DetectedLabels.model_fields if name != "failed_detections")
"""All detected labels, in snake_case."""


class EnrichmentResults(TwoSpellings):
    """Facts that the sender has gathered. The worker gathers its own as well."""

    kubernetes_context: Annotated[dict[str, Any] | None, Unused()] = None
    """Free-form facts about the resource. Ignored, and reported as ignored: the worker reads the cluster
    itself."""
    detected_labels: DetectedLabels | None = None
    """Cluster characteristics; absent if nothing was detected."""
    custom_labels: Annotated[
        dict[LabelName, Annotated[tuple[ShortText, ...], AtMost(MAX_ITEMS)]], AtMost(MAX_ITEMS)
    ] = Field(default_factory=dict)
    """Custom labels: a subdomain and its values, such as `{"team": ["name=payments"]}`."""
    enrichment_quality: Fraction = 0.0
    """How complete the sender's enrichment is. It is meant for the orchestrator; the model does not see
    it."""
