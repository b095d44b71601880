"""How many right answers the rules confirm, and how many wrong ones: `python -m tests.eval_corroboration [-v]`.

Right answers are those that the cases expect. Wrong ones are made from them: other objects, other actions, other revisions.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.memory_cluster import MemoryCluster
from tests.unit.domain.diagnosis.small_clusters import blames
from worker.adapters.file_catalog.loading import read_directory
from worker.domain.cluster.fields import moment, reference
from worker.domain.cluster.pods import pod_failing
from worker.domain.diagnosis.actions import ProposedAction, remedies_of
from worker.domain.diagnosis.causes import Diagnosis, Remedy, named
from worker.domain.diagnosis.claims import Claim, ClaimVerdict, corroborate, diagnose
from worker.domain.diagnosis.driver import Investigator
from worker.domain.diagnosis.facts import ClusterFacts
from worker.domain.diagnosis.structure import API_VERSIONS, chain_of
from worker.domain.values.objects import Manifest, ObjectRef
from worker.domain.values.workflows import Workflow
from worker.sandbox.cluster_files import read_objects

HERE = Path(__file__).parent
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")
GENERIC = {
    "Deployment": (
        "restart-deployment-v1",
        "rollback-deployment-v1",
        "increase-memory-limits-v1",
        "scale-replicas-v1",
    ),
    "StatefulSet": ("restart-deployment-v1", "increase-memory-limits-statefulset-v1", "scale-statefulset-v1"),
    "Node": ("cordon-drain-v1", "cordon-node-v1", "cleanup-node-v1", "remove-taint-v1", "restart-kubelet-v1"),
    "PersistentVolumeClaim": ("expand-pvc-v1", "cleanup-pvc-v1", "fix-statefulset-pvc-v1"),
    "ConfigMap": ("patch-configuration-v1", "restore-configmap-v1"),
    "Service": ("fix-service-selector-v1",),
    "HorizontalPodAutoscaler": ("patch-hpa-v1",),
    "PodDisruptionBudget": ("relax-pdb-v1",),
    "NetworkPolicy": ("fix-network-policy-v1",),
    "Job": ("increase-memory-limits-job-v1", "extend-job-deadline-v1"),
    "CronJob": ("resume-cronjob-v1",),
    "Certificate": ("fix-certificate-v1",),
}


PATCH = frozenset({Remedy.PATCH_CONFIGURATION})


@dataclass(frozen=True)
class Case:
    name: str
    signal: ObjectRef
    incident: dict[str, Any]
    expected: dict[str, Any]
    objects: Sequence[Manifest]
    workflows: Sequence[str]
    folder: Path

    @property
    def accepted(self) -> list[str]:
        """Accepted workflows in the order of the case, an empty one for the answer that names none."""
        listed = self.expected["workflows"]["acceptable"] or ["(none)"]
        found = ["" if w == "(none)" else w for w in listed if w in {"(none)", *self.workflows}]
        return found or [""]

    @property
    def acceptable(self) -> list[ObjectRef]:
        places = [self.expected["affected_resource"], *self.expected.get("acceptable_affected_resources", [])]
        return list(dict.fromkeys(_ref(p) for p in places))


@dataclass(frozen=True)
class Variant:
    case: Case
    kind: str
    object: ObjectRef
    workflow: str = ""
    revision: int | None = None
    signal: ObjectRef | None = None


@dataclass
class Judged:
    variant: Variant
    verdict: ClaimVerdict
    reads: int
    cpu_ms: float


@dataclass
class Evaluation:
    right: list[Judged] = field(default_factory=list)
    any_right: list[Judged] = field(default_factory=list)
    wrong: list[Judged] = field(default_factory=list)
    diagnosed: dict[str, bool] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)


def _ref(place: dict[str, str]) -> ObjectRef:
    return ObjectRef(
        place["kind"],
        place["name"],
        place.get("namespace") or "",
        place.get("apiVersion") or API_VERSIONS.get(place["kind"], ""),
    )


def cases(catalog: dict[str, Workflow]) -> Iterator[Case]:
    """Every case that has a right answer and something wrong in it."""
    folders = [
        *(HERE / "corpus" / "cases").iterdir(),
        *(HERE / "corpus" / "reports").glob("*/*"),
        *(HERE / "analyst_scenarios").iterdir(),
    ]
    for folder in sorted(folders):
        if not (folder / "expected.json").exists():
            continue
        incident = json.loads((folder / "incident.json").read_text())
        expected = json.loads((folder / "expected.json").read_text())
        signal = ObjectRef(
            incident["resource_kind"],
            incident["resource_name"],
            incident.get("resource_namespace") or "",
            incident.get("resource_api_version") or "",
        )
        name = folder.name if folder.name != "case" else folder.parent.name
        workflows = [w for w in expected["workflows"]["acceptable"] if w in catalog]
        yield Case(name, signal, incident, expected, read_objects(folder), workflows, folder)


def right_variants(case: Case) -> Iterator[Variant]:
    """The expected answer first, then every combination that is accepted too."""
    best = case.acceptable[0]
    for ref in case.acceptable:
        for workflow in case.accepted:
            yield Variant(case, "right" if ref == best else "also_right", ref, workflow)


def wrong_variants(case: Case, catalog: dict[str, Workflow]) -> Iterator[Variant]:
    """Answers that must not be confirmed: every one names an action of the catalog."""
    accepted = {named(ref) for ref in case.acceptable}
    accepted |= _chains(case, accepted)
    best = case.acceptable[0]
    families = {remedies_of(catalog[w].action_type) for w in case.workflows}
    for workflow in _passing(case, best, catalog):
        same = remedies_of(workflow.action_type) in families and remedies_of(workflow.action_type) != PATCH
        if workflow.workflow_id not in case.workflows and not same:
            yield Variant(case, "other_action", best, workflow.workflow_id)
    failing = {named(reference(p)) for p in case.objects if p["kind"] == "Pod" and pod_failing(p)}
    for manifest in case.objects:
        ref = reference(manifest)
        if named(ref) in accepted or manifest["kind"] not in GENERIC:
            continue
        kind = _role(case, ref, manifest, failing)
        chosen = [w for w in case.workflows if _takes(catalog[w], ref)] or GENERIC[ref.kind]
        for workflow in dict.fromkeys([*chosen[:2], *GENERIC[ref.kind][:3]]):
            yield Variant(case, kind, ref, workflow)
    yield from _other_signals(case, accepted, failing)
    for workflow in case.workflows:
        if Remedy.ROLL_BACK in remedies_of(catalog[workflow].action_type):
            yield from (
                Variant(case, "other_revision", best, workflow, revision)
                for revision in _wrong_revisions(case, best)
            )


def _other_signals(case: Case, accepted: set[Any], failing: set[Any]) -> Iterator[Variant]:
    """The right answer to a signal of healthy workloads that have nothing to do with it: the link is missing."""
    for manifest in case.objects:
        ref = reference(manifest)
        other = manifest["kind"] in WORKLOADS and named(ref) not in {*accepted, named(case.signal)}
        if other and _role(case, ref, manifest, failing).startswith("healthy"):
            for workflow in case.workflows[:1]:
                yield Variant(case, "other_signal", case.acceptable[0], workflow, signal=ref)


def _role(case: Case, ref: ObjectRef, manifest: Manifest, failing: set[Any]) -> str:
    if named(ref) == named(case.signal):
        return "victim"
    if ref.kind in WORKLOADS:
        sick = any(f[1] == ref.namespace and f[2].startswith(f"{ref.name}-") for f in failing)
        place = "neighbour" if ref.namespace == case.signal.namespace else "elsewhere"
        return f"{'sick' if sick else 'healthy'}_{place}"
    return "other_node" if ref.kind == "Node" else f"other_{ref.kind.lower()}"


def _chains(case: Case, accepted: set[Any]) -> set[Any]:
    """Members of the same owner chain: naming the pod of a workload is naming the workload."""
    facts = ClusterFacts()
    found = set()
    for manifest in case.objects:
        chain = {named(ref) for ref in chain_of(facts, manifest)}
        if chain & accepted and len(chain) > 1:
            found |= chain
    for manifest in case.objects:  # a second step: ReplicaSets are not looked up here
        chain = {named(ref) for ref in chain_of(facts, manifest)}
        if chain & found and manifest["kind"] in {"Pod", "ReplicaSet"}:
            found |= chain
    return found


def _wrong_revisions(case: Case, ref: ObjectRef) -> list[int]:
    mark = "deployment.kubernetes.io/revision"
    mine = [
        m
        for m in case.objects
        if m["kind"] == "ReplicaSet"
        and any(o["name"] == ref.name for o in m["metadata"].get("ownerReferences", []))
    ]
    numbers = sorted(int(m["metadata"].get("annotations", {}).get(mark, 0)) for m in mine)
    return [*numbers[-1:], *numbers[:-2], (numbers[-1] if numbers else 0) + 7]


def _takes(workflow: Workflow, ref: ObjectRef) -> bool:
    kinds = {c.rpartition("/")[2] for c in workflow.labels.get("component", ())}
    return ref.kind in kinds


def _passing(case: Case, ref: ObjectRef, catalog: dict[str, Workflow]) -> Iterator[Workflow]:
    environment = case.incident.get("environment", "")
    for workflow in catalog.values():
        declared = workflow.labels.get("environment", ("*",))
        if _takes(workflow, ref) and ("*" in declared or environment in declared):
            yield workflow


def claim_of(variant: Variant, catalog: dict[str, Workflow]) -> Claim:
    if not variant.workflow:
        return Claim(variant.object)
    workflow = catalog[variant.workflow]
    kinds = next((p.enum for p in workflow.parameters if p.name == "TARGET_RESOURCE_KIND"), ())
    candidates = [
        variant.object,
        *(variant.case.acceptable if variant.kind in {"right", "also_right"} else []),
    ]
    targets = [ref for ref in candidates if ref.kind in kinds][:1]
    return Claim(variant.object, ProposedAction(workflow, tuple(targets), variant.revision))


async def evaluate(catalog: dict[str, Workflow]) -> Evaluation:
    found = Evaluation()
    for case in cases(catalog):
        cluster = MemoryCluster(case.objects)
        facts = ClusterFacts(now=_now(case))
        investigator = Investigator(cluster)
        for variant in right_variants(case):
            judged = await _judge(investigator, facts, variant, catalog)
            (found.right if not any(r.variant.case is case for r in found.right) else found.any_right).append(
                judged
            )
        ranked = await _unanswered(case)
        found.diagnosed[case.name] = bool(ranked) and any(blames(ranked[0], ref) for ref in case.acceptable)
        if not ranked:
            found.silent.append(case.name)
        for variant in wrong_variants(case, catalog):
            found.wrong.append(await _judge(investigator, facts, variant, catalog))
    return found


async def _unanswered(case: Case) -> Sequence[Diagnosis]:
    """What the rules find when no model has answered: they read logs too."""
    facts = ClusterFacts(now=_now(case), texts=True)
    investigator = Investigator(MemoryCluster.read(case.folder))
    return await investigator.conclude(facts, lambda f: diagnose(f, case.signal))


def _now(case: Case) -> Any:
    return moment(case.incident.get("received_time")) or moment(case.incident.get("firing_time"))


async def _judge(
    investigator: Investigator, facts: ClusterFacts, variant: Variant, catalog: dict[str, Workflow]
) -> Judged:
    claim = claim_of(variant, catalog)
    before = len(facts.answers)
    signal = variant.signal or variant.case.signal
    verdict = await investigator.conclude(facts, lambda f: corroborate(f, signal, claim))
    start = time.process_time()
    corroborate(facts, signal, claim)
    return Judged(variant, verdict, len(facts.answers) - before, (time.process_time() - start) * 1000)


def load_catalog() -> dict[str, Workflow]:
    """The catalog of the corpus and that of the scenarios."""
    folders = (HERE / "corpus" / "catalog", HERE / "analyst_scenarios" / "catalog")
    return {key: w for folder in folders for key, w in read_directory(folder).workflows.items()}


def main() -> None:
    catalog = load_catalog()
    found = asyncio.run(evaluate(catalog))
    verbose = "-v" in sys.argv
    report(found, verbose=verbose)


def report(found: Evaluation, *, verbose: bool) -> None:
    right = [j for j in found.right if j.verdict.confirmed]
    by_case = {j.variant.case.name for j in [*found.right, *found.any_right] if j.verdict.confirmed}
    wrong = [j for j in found.wrong if j.verdict.confirmed]
    acting = [j for j in found.right if j.variant.workflow]
    print(
        f"right answers confirmed        {len(right)} of {len(found.right)} ({len(right) / len(found.right):.1%})"
    )
    print(f"  of those with an action      {sum(j.verdict.confirmed for j in acting)} of {len(acting)}")
    print(f"some accepted answer confirmed {len(by_case)} of {len(found.right)}")
    print(
        f"wrong answers confirmed        {len(wrong)} of {len(found.wrong)} ({len(wrong) / len(found.wrong):.2%})"
    )
    print(f"first diagnosis acceptable     {sum(found.diagnosed.values())} of {len(found.diagnosed)}")
    print(f"cases without any diagnosis    {len(found.silent)} of {len(found.diagnosed)}")
    reads = sorted(j.reads for j in found.right)
    cpu = sorted(j.cpu_ms for j in [*found.right, *found.wrong])
    print(
        f"reads: median {reads[len(reads) // 2]}, most {reads[-1]}; CPU ms: median {cpu[len(cpu) // 2]:.1f}, p99 {cpu[int(len(cpu) * 0.99)]:.1f}"
    )
    print("\nwrong answers by kind:")
    for kind, count in Counter(j.variant.kind for j in found.wrong).most_common():
        reasons = Counter(str(j.verdict.doubt or "CONFIRMED") for j in found.wrong if j.variant.kind == kind)
        print(f"  {kind:22} {count:4}  {dict(reasons.most_common())}")
    if verbose:
        for title, items in (
            ("right, not confirmed", [j for j in found.right if not j.verdict.confirmed]),
            ("wrong, confirmed", wrong),
        ):
            print(f"\n{title}:")
            for j in items:
                v = j.variant
                print(
                    f"  {v.case.name}: {v.kind} {v.object} {v.workflow} rev={v.revision}\n      {j.verdict.doubt} {j.verdict.reason}"
                )
        print("\nno diagnosis:", found.silent)
        print("\nfirst diagnosis wrong:", [n for n, ok in found.diagnosed.items() if not ok])


if __name__ == "__main__":
    main()
