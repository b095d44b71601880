"""The shipped example incident and catalog are whole: whatever one object or file says about another is true."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.incident import IncidentRequest
from schemas.recovery import RecoveryRequest
from schemas.taxonomy import RequestKind
from tests.example_variant import CACHE_POD, EXAMPLE, NAMESPACE, VARIANTS, Variant
from worker.adapters.file_catalog import FileCatalog, lint
from worker.domain.intake.decode import Decoded, decode
from worker.domain.untrusted.redaction.redact import redact
from worker.domain.values.workflows import SelectionContext, Workflow
from worker.domain.verdict.checks.parameters import check_values
from worker.domain.verdict.checks.report import CheckReport
from worker.sandbox.cluster_files import find_logs, read_objects
from worker.sandbox.cluster_store import ListOptions, Snapshot

CATALOG = EXAMPLE.parent / "catalog"
LARGEST = 60_000  # bytes of the incident: people read and edit it
GONE = {("Pod", NAMESPACE, CACHE_POD)}
"""Objects that only events still speak of."""

Manifest = dict[str, Any]
Key = tuple[str, str, str]


def key_of(manifest: Manifest) -> Key:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def by_key(manifests: list[Manifest]) -> dict[Key, Manifest]:
    return {key_of(m): m for m in manifests}


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [m for m in manifests if m["kind"] in kinds]


@pytest.fixture(params=VARIANTS, ids=lambda story: story.__name__)
def variant(request, tmp_path) -> Variant:
    return request.param(tmp_path / "case")


@pytest.fixture
def objects(variant) -> list[Manifest]:
    return read_objects(variant.directory)


@pytest.fixture
async def workflows() -> dict[str, Workflow]:
    catalog = await FileCatalog.open(CATALOG)
    ids = [w for path in CATALOG.glob("*.yaml") for w in workflow_ids(path)]
    found = [await catalog.get(workflow_id, SelectionContext()) for workflow_id in ids]
    return {workflow.workflow_id: workflow for workflow in found if workflow}


def documents(path: Path) -> list[Manifest]:
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


def workflow_ids(path: Path) -> Iterator[str]:
    for document in documents(path):
        if document.get("kind") != "ActionType":
            yield document.get("workflow_id") or document["spec"]["workflowId"]


# -- requests


def read_request(name: str, kind: RequestKind) -> Any:
    decoded = decode((EXAMPLE / name).read_bytes(), kind, datetime(2030, 1, 1, tzinfo=UTC))
    assert isinstance(decoded, Decoded), decoded
    assert () == decoded.ignored_fields
    return decoded.request


def test_the_incident_is_accepted_with_every_field():
    request = read_request("incident.json", RequestKind.INCIDENT)
    assert isinstance(request, IncidentRequest)
    assert "2026-03-17" == f"{request.received_time:%Y-%m-%d}"


def test_the_recovery_is_about_the_same_incident():
    incident = read_request("incident.json", RequestKind.INCIDENT)
    recovery = read_request("recovery.json", RequestKind.RECOVERY)
    assert isinstance(recovery, RecoveryRequest)
    for field in ("incident_id", "remediation_id", "signal_type", "resource_kind", "resource_name"):
        assert getattr(incident, field) == getattr(recovery, field), field
    failure = recovery.previous_execution.failure
    assert incident.received_time < failure.failed_at < recovery.received_time


def test_the_workflow_that_failed_is_one_of_the_catalog(workflows):
    failed = read_request("recovery.json", RequestKind.RECOVERY).previous_execution.selected_workflow
    workflow = workflows[failed.workflow_id]
    assert (workflow.version, workflow.container_image) == (failed.version, failed.container_image)
    report = CheckReport()
    check_values(workflow, failed.parameters, report)
    assert [] == report.problems


def test_the_alert_names_an_object_that_is_not_the_cause(variant, objects):
    request = read_request("incident.json", RequestKind.INCIDENT)
    assert (request.resource_kind, request.resource_namespace, request.resource_name) in by_key(objects)
    for affected in variant.affected:
        assert (affected.kind, affected.namespace, affected.name) in by_key(objects)


# -- the cluster


def test_the_snapshot_is_served(variant, objects):
    snapshot = Snapshot.read(variant.directory)
    found = {
        (resource.kind, item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for resource in {snapshot.resources.of(m["apiVersion"], m["kind"]) for m in objects}
        for item in snapshot.list(resource, ListOptions())["items"]
    }
    assert set(by_key(objects)) == found
    assert len(objects) == len(found), "two objects have the same name"


def test_uids_are_unique(objects):
    uids = [m["metadata"]["uid"] for m in objects if m["kind"] != "Event"]
    assert len(uids) == len(set(uids))


def test_controllers_exist_and_are_meant_by_uid(objects):
    known = by_key(objects)
    owners = [(m, o) for m in objects for o in m["metadata"].get("ownerReferences", [])]
    assert owners
    for manifest, owner in owners:
        found = known[owner["kind"], manifest["metadata"]["namespace"], owner["name"]]
        assert found["metadata"]["uid"] == owner["uid"], key_of(manifest)
        assert found["apiVersion"] == owner["apiVersion"]


def test_events_are_about_objects_that_exist_or_are_gone_on_purpose(objects):
    known = by_key(objects)
    events = of_kind(objects, "Event")
    assert events
    for event in events:
        about = event["involvedObject"]
        key = (about["kind"], about["namespace"], about["name"])
        if key not in known:
            assert key in GONE
            continue
        assert known[key]["metadata"]["uid"] == about["uid"], event["metadata"]["name"]


def test_pods_run_what_their_owner_says_on_a_node_that_exists(objects):
    known = by_key(objects)
    for pod in of_kind(objects, "Pod"):
        assert ("Node", "", pod["spec"]["nodeName"]) in known
        for owner in pod["metadata"].get("ownerReferences", []):
            template = known[owner["kind"], pod["metadata"]["namespace"], owner["name"]]["spec"]["template"]
            assert template["spec"]["containers"] == pod["spec"]["containers"], key_of(pod)
            assert template["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()


def test_deployments_have_the_template_of_their_newest_revision(objects):
    revision = "deployment.kubernetes.io/revision"
    for deployment in of_kind(objects, "Deployment"):
        number = deployment["metadata"]["annotations"][revision]
        [newest] = [
            m
            for m in of_kind(objects, "ReplicaSet")
            if m["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]
            and m["metadata"]["annotations"][revision] == number
        ]
        assert newest["spec"]["template"]["spec"] == deployment["spec"]["template"]["spec"]
        assert newest["spec"]["replicas"] == deployment["spec"]["replicas"]


def test_what_pods_and_policies_refer_to_exists(objects):
    known = by_key(objects)
    wanted = [
        (m, ref)
        for m in of_kind(objects, "Pod", "Endpoints", "HorizontalPodAutoscaler", "PersistentVolumeClaim")
        for ref in references(m)
    ]
    assert wanted
    for manifest, reference in wanted:
        assert reference in known, key_of(manifest)


def references(manifest: Manifest) -> Iterator[Key]:
    namespace, spec = manifest["metadata"]["namespace"], manifest.get("spec", {})
    yield from mounted(spec, namespace)
    if target := spec.get("scaleTargetRef"):
        yield target["kind"], namespace, target["name"]
    if "volumeName" in spec:
        yield "PersistentVolume", "", spec["volumeName"]
        yield "StorageClass", "", spec["storageClassName"]
    for address in addresses(manifest):
        yield address["targetRef"]["kind"], namespace, address["targetRef"]["name"]


def mounted(spec: Manifest, namespace: str) -> Iterator[Key]:
    for container in spec.get("containers", []):
        for source in container.get("envFrom", []):
            yield "ConfigMap", namespace, source["configMapRef"]["name"]
        for variable in container.get("env", []):
            if secret := variable.get("valueFrom", {}).get("secretKeyRef"):
                yield "Secret", namespace, secret["name"]
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", namespace, volume["configMap"]["name"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", namespace, volume["persistentVolumeClaim"]["claimName"]


def addresses(endpoints: Manifest) -> Iterator[Manifest]:
    for subset in endpoints.get("subsets", []):
        yield from subset.get("addresses", [])
        yield from subset.get("notReadyAddresses", [])


def test_endpoints_are_the_pods_behind_them(objects):
    pods = {m["metadata"]["uid"]: m for m in of_kind(objects, "Pod")}
    for endpoints in of_kind(objects, "Endpoints"):
        for subset in endpoints["subsets"]:
            for field, ready in (("addresses", "True"), ("notReadyAddresses", "False")):
                for address in subset.get(field, []):
                    pod = pods[address["targetRef"]["uid"]]
                    assert pod["status"]["podIP"] == address["ip"]
                    [condition] = [c for c in pod["status"]["conditions"] if c["type"] == "Ready"]
                    assert ready == condition["status"], key_of(pod)


def test_nothing_happened_after_the_request_was_received(objects):
    received = read_request("incident.json", RequestKind.INCIDENT).received_time
    for manifest in objects:
        for moment in re.findall(r"\"(\d{4}-\d\d-\d\dT[\d:.]+Z)\"", json.dumps(manifest)):
            assert datetime.fromisoformat(moment) <= received, key_of(manifest)


def test_logs_belong_to_containers_that_wrote_them(variant, objects):
    known = by_key(objects)
    logs = find_logs(variant.directory)
    assert {path.name for path in (variant.directory / "logs").iterdir()} == {p.name for p in logs.values()}
    for namespace, pod, container, previous in logs:
        statuses = known["Pod", namespace, pod]["status"]["containerStatuses"]
        [status] = [s for s in statuses if s["name"] == container]
        assert "terminated" in status["lastState"] if previous else "running" in status["state"], pod


def test_the_example_shows_logs_of_present_and_of_previous_runs():
    assert {True, False} == {previous for *_, previous in find_logs(EXAMPLE)}


def test_the_story_is_told_by_the_limit_of_two_revisions():
    sets = {
        m["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: m["spec"]["template"]["spec"]
        for m in of_kind(read_objects(EXAMPLE), "ReplicaSet")
        if m["metadata"]["name"].startswith("basket-cache-")
    }
    limits = {n: spec["containers"][0].pop("resources")["limits"]["memory"] for n, spec in sets.items()}
    assert {"6": "640Mi", "7": "256Mi"} == limits
    assert sets["6"] == sets["7"]


def test_the_example_is_small_enough_to_read():
    assert sum(p.stat().st_size for p in EXAMPLE.rglob("*") if p.is_file()) < LARGEST


# -- the catalog


def test_the_catalog_has_nothing_to_complain_about():
    assert [] == [str(problem) for problem in lint(CATALOG).problems]


def test_the_catalog_shows_both_forms(workflows):
    kinds = [d.get("kind", "flat") for path in CATALOG.glob("*.yaml") for d in documents(path)]
    assert {"flat": 10, "RemediationWorkflow": 3, "ActionType": 3} == {k: kinds.count(k) for k in kinds}
    assert 13 == len(workflows)


async def test_every_workflow_says_when_to_use_it_and_what_it_runs(workflows):
    for workflow in workflows.values():
        assert all((workflow.title, workflow.description, workflow.when_to_use, workflow.when_not_to_use))
        assert re.fullmatch(r"registry\.example\.com/[a-z/-]+@sha256:[0-9a-f]{64}", workflow.container_image)
        target = workflow.parameter("TARGET_RESOURCE_KIND")
        assert target is not None
        components = {c.rpartition("/")[2] for c in workflow.labels["component"]}
        assert set(target.enum) <= components
        for parameter in workflow.parameters:
            bounded = (parameter.pattern, parameter.enum, parameter.minimum, parameter.max_length)
            assert any(b not in {None, "", ()} for b in bounded), parameter.name


def test_workflows_that_would_help_are_in_the_catalog(variant, workflows):
    assert set(variant.workflows) <= set(workflows)


# -- secrets


def shipped() -> list[Path]:
    return sorted(path for path in EXAMPLE.parent.rglob("*") if path.is_file())


def test_everything_that_looks_like_a_credential_is_an_invented_one():
    changed = [
        (path.name, line)
        for path in shipped()
        for line, shown in zip(
            path.read_text().splitlines(), redact(path.read_text()).splitlines(), strict=True
        )
        if line != shown
    ]
    assert changed
    assert [] == [
        (name, line) for name, line in changed if "FAKE" not in line and "FAKE" not in decoded(line)
    ]


def decoded(line: str) -> str:
    word = line.rsplit(maxsplit=1)[-1]
    try:
        return base64.b64decode(word, validate=True).decode()
    except ValueError:
        return ""


def test_no_invented_credential_survives_redaction():
    texts = {path.name: path.read_text() for path in shipped()}
    fakes = {fake for text in texts.values() for fake in re.findall(r"FAKE[\w-]*", text)}
    assert {"FAKE-teapot-2026"} == fakes
    hidden = [base64.b64encode(fake.encode()).decode() for fake in fakes]
    for name, text in texts.items():
        shown = redact(text)
        assert not any(secret in shown for secret in [*fakes, *hidden]), name


def test_only_logs_and_the_secret_hold_a_credential():
    for manifest in read_objects(EXAMPLE):
        if manifest["kind"] != "Secret":
            assert "FAKE" not in json.dumps(manifest)
