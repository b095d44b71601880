from __future__ import annotations

import pytest

from worker.domain.cluster.kinds import belongs_by_name, canonical_kind, is_secret, split_kind
from worker.domain.values.objects import ObjectRef


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
