"""What the names of actions mean, and when one fits."""

import pytest

from tests.fakes.manifests import crashing
from tests.unit.domain.diagnosis.small_clusters import claim, judged, waiting, workload
from worker.domain.diagnosis.actions import NAMES, ProposedAction, misfit, remedies_of
from worker.domain.diagnosis.causes import Cause, Diagnosis, Remedy, Strength
from worker.domain.diagnosis.claims import Doubt
from worker.domain.diagnosis.structure import ref_to
from worker.domain.values.workflows import Workflow

API = ref_to("Deployment", "api", "shop")


@pytest.mark.parametrize(
    ("action_type", "remedy"),
    [
        ("IncreaseMemoryLimits", Remedy.INCREASE_MEMORY),
        ("RollbackDeployment", Remedy.ROLL_BACK),
        ("GitRevertCommit", Remedy.REVERT_SOURCE),
        ("RestartDeployment", Remedy.RESTART),
        ("restart_pod", Remedy.RESTART),
        ("RestartKubelet", Remedy.RESTART_NODE_AGENT),
        ("CordonDrainNode", Remedy.DRAIN),
        ("CordonNode", Remedy.CORDON),
        ("UncordonNode", Remedy.UNCORDON),
        ("PatchConfiguration", Remedy.PATCH_CONFIGURATION),
        ("RestoreConfigMap", Remedy.RESTORE_CONFIGURATION),
        ("FixStatefulSetPVC", Remedy.RECREATE_CLAIM),
        ("ExpandPersistentVolumeClaim", Remedy.EXPAND_VOLUME),
        ("CleanupPVC", Remedy.CLEAN_VOLUME),
        ("CleanupNode", Remedy.CLEAN_NODE),
        ("RelaxPDB", Remedy.RELAX_DISRUPTION_BUDGET),
        ("PatchHPA", Remedy.RAISE_AUTOSCALER),
        ("RefreshImagePullSecret", Remedy.REFRESH_PULL_SECRET),
        ("FixImageReference", Remedy.FIX_IMAGE),
        ("ProvisionNode", Remedy.ADD_CAPACITY),
        ("ScaleReplicas", Remedy.SCALE_UP),
        ("ResumeCronJob", Remedy.RESUME),
        ("ScaleUpDeployment", Remedy.SCALE_UP),
        ("ScaleDownDeployment", Remedy.SCALE_DOWN),
        ("FixNodeSelector", Remedy.FIX_PLACEMENT),
        ("patch_node_affinity", Remedy.FIX_PLACEMENT),
        ("RelaxPodAntiAffinity", Remedy.RELAX_POD_RULES),
        ("RelaxTopologySpread", Remedy.RELAX_POD_RULES),
        ("FixAffinity", Remedy.FIX_PLACEMENT),
        ("FixPodPlacement", Remedy.RELAX_POD_RULES),
    ],
)
def test_names_of_actions(action_type, remedy):
    assert remedy in remedies_of(action_type)


def finding(**fields):
    return Diagnosis(fields.pop("cause", Cause.CONTROLLER), API, "It is broken.", **fields)


def other(signal="Broken", component="apps/v1/Deployment", action_type="Frobnicate"):
    return ProposedAction(
        Workflow("x-v1", action_type, labels={"signal_type": (signal,), "component": (component,)}), (API,)
    )


def test_every_remedy_is_meant_by_some_action():
    assert frozenset().union(*(remedies for _, remedies in NAMES)) == set(Remedy)


@pytest.mark.parametrize("action_type", ["FixServiceSelector", "FixSessionAffinity", "CreateReplacementPod"])
def test_other_selectors_and_affinities_place_no_pod(action_type):
    assert remedies_of(action_type).isdisjoint({Remedy.FIX_PLACEMENT, Remedy.RELAX_POD_RULES})


def test_an_action_that_is_not_understood_fits_by_what_its_workflow_declares():
    assert misfit(other(), finding(signals=("broken",))) == ""
    assert misfit(other("Other"), finding(signals=("broken",)))
    assert misfit(other(component="v1/Node"), finding(signals=("broken",)))
    assert misfit(other(), finding(signals=("broken",), strength=Strength.SYMPTOM))


def test_an_action_on_something_else_does_not_fit():
    action = ProposedAction(Workflow("x-v1", "IncreaseMemoryLimits"), (ref_to("Deployment", "web", "shop"),))
    assert misfit(action, finding(remedies=frozenset({Remedy.INCREASE_MEMORY})))


@pytest.mark.parametrize(
    "action_type", ["DecreaseMemoryLimits", "reduce_cpu", "LowerHPAMax", "TaintNode", "DisableHPA"]
)
def test_opposite_actions_fit_nothing_even_if_declared(action_type):
    assert remedies_of(action_type) == frozenset()
    assert misfit(other(action_type=action_type), finding(signals=("broken",)))


@pytest.mark.parametrize(
    ("action_type", "other"), [("ScaleUp", Remedy.SCALE_DOWN), ("ScaleIn", Remedy.SCALE_UP)]
)
def test_a_direction_of_scaling_is_no_other_one(action_type, other):
    assert other not in remedies_of(action_type)


@pytest.mark.parametrize("action_type", ["RestartMemoryCache", "RestartConfigServer", "RestartDigitalShop"])
def test_a_restart_is_a_restart_whatever_it_restarts(action_type):
    assert remedies_of(action_type) == {Remedy.RESTART}


async def test_what_a_gitops_tool_owns_is_changed_at_its_source():
    api = workload(status=waiting("ErrImagePull", "not found"))
    wrong = await judged(*api, about=api[0], claim=claim(api[0], "GitRevertCommit"))
    assert wrong.doubt is Doubt.ACTION_DOES_NOT_FIT
    api[0]["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "x"}
    assert (await judged(*api, about=api[0], claim=claim(api[0], "GitRevertCommit"))).confirmed
    edited = await judged(*api, about=api[0], claim=claim(api[0], "FixImageReference"))
    assert edited.doubt is Doubt.ACTION_DOES_NOT_FIT


@pytest.mark.parametrize(("writer", "kept"), [("argocd-controller", True), ("kubectl-edit", False)])
async def test_a_gitops_tool_that_only_its_name_as_a_writer_shows(writer, kept):
    api = workload(status=waiting("ErrImagePull", "not found"))
    api[0]["metadata"]["managedFields"] = [{"manager": writer, "time": "2026-05-01T00:00:00Z"}]
    edited = await judged(*api, about=api[0], claim=claim(api[0], "FixImageReference"))
    assert edited.confirmed is not kept


async def test_a_claim_without_an_action_needs_state_and_link_only():
    api = workload(status=crashing("OOMKilled", 137), resources={"limits": {"memory": "1Gi"}})
    verdict = await judged(*api, about=api[0], claim=claim(api[0]))
    assert verdict.confirmed
    assert verdict.finding is not None
    assert verdict.finding.cause is Cause.OUT_OF_MEMORY
