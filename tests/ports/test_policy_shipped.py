"""What the shipped policy decides, in the process the worker evaluates it in."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from schemas.analysis import Corroboration, CorroborationSource, ParameterOrigin
from schemas.enrichment import DetectedLabels
from tests.fakes.rego import PATIENT
from worker.adapters.rego_policy import RegorusPolicy, read_files
from worker.domain.values.objects import ObjectRef
from worker.domain.verdict.approval.factors import FactorCode, factor
from worker.domain.verdict.approval.policy import PolicyFacts, policy_input

SURE = {
    "affected": ObjectRef("Deployment", "api", "shop", "apps/v1"), "target": ObjectRef("Pod", "api-0", "shop", "v1"),
    "environment": "production", "priority": "P1", "severity": "high", "signal_type": "OOMKilled",
    "action_type": "RestartDeployment", "confidence": 0.95, "confidence_threshold": 0.8,
    "detected_labels": DetectedLabels(), "custom_labels": {},
    "corroboration": Corroboration(by=CorroborationSource.RULES), "estimated_risk": "low", "declared_risk": "low",
}  # fmt: skip


def facts(**changed) -> dict:
    values = SURE | changed
    return policy_input(PolicyFacts(**({"acted_on": values["affected"]} | values)))


@pytest.fixture(scope="module")
def shipped():
    """All decisions of the shipped policy on the inputs below, taken in one process."""
    asked = {name: facts(**changed) for name, (changed, _) in SHIPPED.items()}
    whole = facts(environment="staging")
    asked |= {f"without {field}": {k: v for k, v in whole.items() if k != field} for field in whole}
    asked |= {"empty": {}}

    async def run():
        async with RegorusPolicy(read_files, PATIENT) as policy:
            return {name: (await policy.decide(one)).approval for name, one in asked.items()}

    return asyncio.run(run())


UNCONFIRMED = Corroboration(by=CorroborationSource.NONE, reason="It is well.")
NODE = ObjectRef("Node", "worker-1")
SHIPPED = {
    "restart in production": ({}, None),
    "rolling back in production": ({"action_type": "RollbackDeployment"}, None),
    "no declared risk": ({"declared_risk": ""}, "does not declare restart_deployment as low risk"),
    "medium risk": ({"declared_risk": "medium"}, "does not declare restart_deployment as low risk"),
    "no declared risk in staging": ({"declared_risk": "", "environment": "staging"}, None),
    "high risk in staging": ({"declared_risk": "high", "environment": "staging"}, "as high risk"),
    "high risk by the model": ({"estimated_risk": "high"}, "model estimates the risk as high"),
    "not quite sure in production": ({"confidence": 0.85}, None),
    "long downtime": ({"estimated_downtime_seconds": 120}, "may take 120 s, more than 60 s"),
    "scaling up": ({"action_type": "ScaleUp"}, None),
    "scaling out": ({"action_type": "ScaleOut"}, None),
    "scaling down": ({"action_type": "ScaleDown"}, "may take capacity away"),
    "scaling somewhere": ({"action_type": "ScaleReplicas"}, "may take capacity away"),
    "scaling to the default": ({"action_type": "ScaleReplicas", "parameter_origins": {"REPLICAS": ParameterOrigin.CATALOG_DEFAULT}}, "may take capacity away"),
    "scaling up, as code has checked": ({"action_type": "ScaleReplicas", "parameter_origins": {"REPLICAS": ParameterOrigin.CODE}}, None),
    "suspending": ({"action_type": "SuspendCronJob"}, "may take capacity away"),
    "draining what is no node": ({"action_type": "DrainPool"}, "may take capacity away"),
    "a node behind a deployment": ({"acted_on": NODE, "action_type": "RestartKubelet"}, "more than one workload"),
    "a claim behind a deployment": ({"acted_on": ObjectRef("PersistentVolumeClaim", "data", "shop"), "action_type": "ExpandPVC"}, "holds state"),
    "not confirmed": ({"corroboration": UNCONFIRMED}, "does not confirm the answer. It is well."),
    "not confirmed in staging": ({"corroboration": UNCONFIRMED, "environment": "staging"}, "does not confirm the answer"),
    "confirmed by the second view": ({"corroboration": Corroboration(by=CorroborationSource.SECOND_VIEW)}, None),
    "a value of the model": ({"environment": "staging", "parameter_origins": {"FACTOR": ParameterOrigin.MODEL}}, "FACTOR is the model's own"),
    "values of code and catalog": (
        {"parameter_origins": {"TARGET": ParameterOrigin.CODE, "FACTOR": ParameterOrigin.CATALOG_DEFAULT}}, None),
    "short downtime": ({"estimated_downtime_seconds": 5}, None),
    "unknown environment": ({"environment": "unknown", "declared_risk": ""}, "as low risk"),
    "unheard-of environment": ({"environment": "eu-1", "declared_risk": ""}, "as low risk"),
    "rolling back in staging": ({"environment": "Staging", "action_type": "RollbackDeployment"}, None),
    "unsure in staging": ({"environment": "staging", "confidence": 0.75}, "confidence 0.75 is below 0.8"),
    "no confidence": ({"environment": "staging", "confidence": None}, "confidence 0"),
    "another threshold": ({"environment": "staging", "confidence": 0.75, "confidence_threshold": 0.7}, None),
    "node": ({"affected": NODE, "action_type": "CordonDrainNode"}, "more than one workload"),
    "node in staging": ({"affected": NODE, "environment": "staging", "action_type": "CordonDrainNode"}, None),
    "stateful set": ({"affected": ObjectRef("StatefulSet", "db", "shop")}, "holds state"),
    "stateful workload": ({"detected_labels": DetectedLabels(stateful=True)}, "stateful workload"),
    "warnings": ({"warnings": ["the namespace differs"]}, None),
    "failed detections": ({"detected_labels": DetectedLabels(failed_detections=("hpaEnabled",))}, "hpaEnabled"),
    "failed detections in staging": (
        {"environment": "staging", "detected_labels": DetectedLabels(failed_detections=("hpaEnabled",))}, None),
    "recovery": ({"recovery_attempt": 1}, "earlier remediation"),
    "recovery in staging": ({"recovery_attempt": 2, "environment": "staging"}, None),
    "third recovery in staging": ({"recovery_attempt": 3, "environment": "staging"}, "recovery attempt 3"),
    "cleaning a claim in staging": (
        {"environment": "staging", "action_type": "CleanupPVC", "acted_on": ObjectRef("PersistentVolumeClaim", "data", "shop")}, "may delete what"),
    "restoring a backup in staging": ({"environment": "staging", "action_type": "RestoreDatabase"}, "hard to undo"),
    "restoring a claim in staging": (
        {"environment": "staging", "action_type": "RestoreConfig", "acted_on": ObjectRef("PersistentVolumeClaim", "data", "shop")}, "hard to undo"),
    "restoring a ConfigMap in staging": (
        {"environment": "staging", "action_type": "RestoreConfigMap", "affected": ObjectRef("ConfigMap", "conf", "shop")}, None),
    "cleaning a node in staging": ({"environment": "staging", "action_type": "CleanupNode", "affected": NODE}, None),
    "deletion in staging": ({"environment": "staging", "action_type": "DeletePersistentVolumeClaim"}, "hard to undo"),
    "deletion by force in staging": ({"environment": "staging", "action_type": "ForceDeletePod"}, "hard to undo"),
    "deletion in one word": ({"environment": "staging", "action_type": "deletepvc"}, "hard to undo"),
    "deletion with a dot": ({"environment": "staging", "action_type": "pvc.delete"}, "hard to undo"),
    "wiping with a colon": ({"environment": "staging", "action_type": "wipe:disk"}, "hard to undo"),
    "truncating in staging": ({"environment": "staging", "action_type": "TruncateTable"}, "hard to undo"),
    "fewer replicas": ({"action_type": "ReduceReplicas"}, "may take capacity away"),
    "injection in staging": ({"environment": "staging", "injection_suspected": True}, None),
    "unverified in staging": ({"environment": "staging", "unverified": True}, "could not check"),
    "factor in staging": ({"environment": "staging", "approval_factors": [factor(FactorCode.RESOURCE_ABSENT, "Pod shop/a")]}, "Pod shop/a"),
    "no target": ({"environment": "staging", "affected": ObjectRef("", "")}, "not known"),
    "gitops in staging": ({"environment": "staging", "detected_labels": DetectedLabels(gitops_managed=True)}, None),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_policy(shipped, name):
    _, reason = SHIPPED[name]
    decided = shipped[name]
    assert (reason is not None) == decided.required, decided
    if reason is None:
        assert decided.reasons == ()
        assert all(factor.score < 50 for factor in decided.risk_factors)
    else:
        assert any(reason in text for text in decided.reasons), decided.reasons
        assert set(decided.reasons) <= {factor.reason for factor in decided.risk_factors}
    assert not any("could not be evaluated" in text for text in decided.reasons)


@pytest.mark.parametrize(
    "field", ["environment", "confidence", "affected_resource", "injection_detected", "unverified"]
)
def test_a_missing_field_that_matters_leads_to_approval(shipped, field):
    decided = shipped[f"without {field}"]
    if field == "environment":  # production, where a restart may run by itself
        assert "The environment is production." in {factor.reason for factor in decided.risk_factors}
    else:
        assert decided.required


def test_an_empty_input_leads_to_approval(shipped):
    assert shipped["empty"].required


def test_information_is_given_without_approval(shipped):
    factors = shipped["gitops in staging"].risk_factors
    assert [f.reason for f in factors] == [
        "A GitOps tool manages the target and reverts changes made outside of the repository."
    ]


async def test_the_shipped_policy_is_never_looser_in_production_than_elsewhere():
    """Every combination of what it looks at: what needs approval in staging needs it in production."""
    choices = {
        "confidence": [0.5, 0.85, 0.95],
        "action_type": ["RestartDeployment", "DeletePod", "PatchHPA"],
        "affected": [SURE["affected"], NODE, ObjectRef("StatefulSet", "db", "shop")],
        "warnings": [[], ["x"]],
        "recovery_attempt": [None, 1, 3],
        "unverified": [False, True],
    }
    async with RegorusPolicy(read_files, PATIENT) as policy:
        for values in itertools.product(*choices.values()):
            changed = dict(zip(choices, values, strict=True))
            elsewhere = (await policy.decide(facts(environment="staging", **changed))).approval
            production = (await policy.decide(facts(environment="production", **changed))).approval
            assert production.required >= elsewhere.required, changed
