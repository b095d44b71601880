from __future__ import annotations

import pytest

from schemas.incident import CLUSTER_SCOPED_KINDS, NAMESPACED_KINDS
from worker.domain.cluster.kinds import (
    BUILT_IN,
    REVISIONS_KEPT_AS,
    WORKLOADS,
    belongs_by_name,
    built_in,
    canonical_kind,
    is_secret,
    split_kind,
)
from worker.domain.values.objects import KindInfo, ObjectRef


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("po", "Pod"),
        ("pods", "Pod"),
        ("Deployment", "Deployment"),
        ("deploy", "Deployment"),
        ("networkpolicies", "NetworkPolicy"),
        ("ingresses", "Ingress"),
        ("endpoints", "Endpoints"),
        ("storageclasses", "StorageClass"),
        ("pvc", "PersistentVolumeClaim"),
        ("Rollout", "Rollout"),
    ],
)
def test_kinds_are_understood_in_every_spelling(written, expected):
    assert expected == canonical_kind(written)


@pytest.mark.parametrize(
    ("name", "api_version", "expected"),
    [
        ("po", "", ("Pod", "v1", "pods", True)),
        ("nodes", "v1", ("Node", "v1", "nodes", False)),
        ("event", "", ("Event", "v1", "events", True)),
        ("events", "events.k8s.io/v1", ("Event", "events.k8s.io/v1", "events", True)),
        ("hpa", "", ("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers", True)),
    ],
)
def test_a_built_in_kind_needs_no_discovery(name, api_version, expected):
    assert KindInfo(*expected) == built_in(name, api_version)


def test_what_is_not_built_in_or_not_in_that_version_is_unknown():
    assert None is built_in("rollout")
    assert None is built_in("deployment", "extensions/v1beta1")


def test_the_contract_has_the_same_scopes():
    """The contract cannot import the table: it has lists of its own."""
    namespaced = {info.kind.lower() for info, _ in BUILT_IN if info.namespaced}
    assert namespaced <= NAMESPACED_KINDS
    assert {info.kind.lower() for info, _ in BUILT_IN} - namespaced <= CLUSTER_SCOPED_KINDS


def test_workloads_and_their_revisions_are_kinds_of_the_table():
    kinds = {info.kind for info, _ in BUILT_IN}
    assert {*WORKLOADS, *REVISIONS_KEPT_AS.values()} <= kinds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Pod", ("", "Pod")),
        ("v1/Pod", ("v1", "Pod")),
        ("apps/v1/Deployment", ("apps/v1", "Deployment")),
        ("deployments.apps", ("", "deployments")),
    ],
)
def test_a_kind_may_carry_its_api_version(written, expected):
    assert expected == split_kind(written)


@pytest.mark.parametrize("written", ["Secret", "secrets", "SECRET", "v1/Secret", "secrets.v1", " secret "])
def test_secrets_are_recognised_in_every_spelling(written):
    assert is_secret(written)


def test_kinds_that_only_speak_of_secrets_are_none():
    assert not is_secret("ExternalSecret")
    assert not is_secret("SecretStore")


@pytest.mark.parametrize(
    ("owner", "made", "expected"),
    [
        (("Deployment", "api"), ("Pod", "api-7d8f9c6b54-x2x4z"), True),
        (("Deployment", "api"), ("ReplicaSet", "api-7d8f9c6b54"), True),
        (("Deployment", "api"), ("Pod", "api-gateway-7d8f9c6b54-x2x4z"), False),
        (("Deployment", "api"), ("ReplicaSet", "api-gateway"), False),
        (("StatefulSet", "db"), ("Pod", "db-0"), True),
        (("StatefulSet", "db"), ("Pod", "db-backup-0"), False),
        (("DaemonSet", "proxy"), ("Pod", "proxy-x2x4z"), True),
        (("Job", "load"), ("Pod", "load-x2x4z"), True),
        (("CronJob", "load"), ("Job", "load-29107640"), True),
        (("CronJob", "load"), ("Pod", "load-29107640-x2x4z"), True),
        (("Deployment", "api"), ("Service", "api-1"), False),
    ],
)
def test_what_controllers_make_is_known_by_name(owner, made, expected):
    assert expected is belongs_by_name(ObjectRef(*owner, "shop"), ObjectRef(*made, "shop"))


def test_names_do_not_reach_into_other_namespaces():
    assert not belongs_by_name(ObjectRef("StatefulSet", "db", "shop"), ObjectRef("Pod", "db-0", "other"))
