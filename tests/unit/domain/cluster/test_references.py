from __future__ import annotations

from hypothesis import given

from tests.fakes.hostile import OBJECTS
from worker.domain.cluster.references import references_of

SPEC = {
    "volumes": [
        {"name": "a", "configMap": {"name": "settings"}},
        {"name": "b", "secret": {"secretName": "tls", "optional": True}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {
            "name": "d",
            "projected": {"sources": [{"configMap": {"name": "ca"}}, {"secret": {"name": "token"}}]},
        },
        {
            "name": "kube-api-access-x",
            "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]},
        },
    ],
    "imagePullSecrets": [{"name": "registry"}],
    "containers": [
        {
            "envFrom": [{"configMapRef": {"name": "flags", "optional": True}}, {"secretRef": {"name": "db"}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "tls", "key": "b"}}},
            ],
        }
    ],
}


def test_everything_a_pod_refers_to_is_found_once():
    found = references_of(SPEC)
    assert ("settings", "ca", "flags") == found.config_maps
    assert ("tls", "token", "registry", "db") == found.secrets
    assert ("data",) == found.claims


def test_the_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume():
    spec = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
    assert ("api-0-scratch",) == references_of(spec, "api-0").claims
    assert () == references_of(spec).claims


def test_optional_is_what_no_reference_needs():
    assert {"flags"} == references_of(SPEC).optional


@given(OBJECTS)
def test_any_object_can_be_read_as_a_pod_spec(spec):
    assert all(isinstance(name, str) for name in references_of(spec).config_maps)
