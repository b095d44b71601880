from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.enrichment import DETECTED_LABELS, DetectedLabels, EnrichmentResults, camel_case, snake_case

FLAGS = tuple(
    name for name in DETECTED_LABELS if name not in {"gitops_tool", "pod_security_level", "service_mesh"}
)


def test_ten_labels_are_detected():
    assert len(DETECTED_LABELS) == 10


@pytest.mark.parametrize("label", DETECTED_LABELS)
def test_spellings_are_inverse(label):
    assert label == snake_case(camel_case(label)) == snake_case(label)
    assert camel_case(label) == camel_case(camel_case(label))


def test_an_absent_flag_is_false_unless_its_detection_failed():
    labels = DetectedLabels.model_validate({"hpaEnabled": True, "failedDetections": ["pdbProtected"]})
    assert labels.flag("hpaEnabled") is True
    assert labels.flag("stateful") is False
    assert labels.flag("pdbProtected") is None
    assert labels.flag("pdb_protected") is None


def test_a_failed_detection_is_unknown_even_with_a_value():
    labels = DetectedLabels.model_validate({"helmManaged": True, "failed_detections": ["helm_managed"]})
    assert labels.flag("helmManaged") is None


def test_a_label_nobody_detects_is_unknown():
    assert DetectedLabels().flag("virtualMachine") is None
    assert DetectedLabels().text("virtualMachine") is None


@pytest.mark.parametrize("spelling", ["gitOpsTool", "gitops_tool"])
def test_text_of_a_label_in_either_spelling(spelling):
    labels = DetectedLabels.model_validate({spelling: "argocd"})
    assert "argocd" == labels.text("gitOpsTool") == labels.text("gitops_tool")
    assert labels.flag("gitops_tool") is True
    assert labels.text("serviceMesh") == ""
    assert labels.flag("serviceMesh") is False
    assert labels.text("stateful") == "false"


@pytest.mark.parametrize("spelling", ["gitOpsManaged", "gitops_managed"])
def test_null_is_unknown(spelling):
    labels = DetectedLabels.model_validate({spelling: None, "failedDetections": ["stateful"]})
    assert labels.failed_detections == ("stateful", "gitOpsManaged")
    assert labels.flag("gitops_managed") is None


def test_null_does_not_hide_a_wrong_list():
    with pytest.raises(ValidationError):
        DetectedLabels.model_validate({"stateful": None, "failedDetections": "stateful"})


@pytest.mark.parametrize("value", ["yes please", "true", 1, 0, [], {}])
@pytest.mark.parametrize("label", FLAGS)
def test_a_flag_is_a_boolean(label, value):
    with pytest.raises(ValidationError):
        DetectedLabels.model_validate({camel_case(label): value})


def test_one_spelling_at_a_time():
    with pytest.raises(ValidationError, match="only one of pdb_protected and pdbProtected"):
        DetectedLabels.model_validate({"pdbProtected": True, "pdb_protected": False})
    with pytest.raises(ValidationError, match="only one of"):
        EnrichmentResults.model_validate({"detectedLabels": {}, "detected_labels": {}})


@pytest.mark.parametrize("value", [[], "hpaEnabled", 1])
def test_labels_are_an_object(value):
    with pytest.raises(ValidationError):
        EnrichmentResults.model_validate({"detectedLabels": value})


def test_messages_are_camel_case():
    written = json.loads(
        DetectedLabels(gitops_managed=True, failed_detections=("pdb_protected",)).model_dump_json()
    )
    assert written["gitOpsManaged"] is True
    assert written["failedDetections"] == ["pdbProtected"]


@pytest.mark.parametrize(
    "value",
    [
        {"customLabels": {"team": "payments"}},
        {"customLabels": []},
        {"enrichmentQuality": 1.5},
        {"enrichmentQuality": "1"},
    ],
)
def test_enrichment_of_the_wrong_form_is_refused(value):
    with pytest.raises(ValidationError):
        EnrichmentResults.model_validate(value)


@given(
    st.dictionaries(st.sampled_from(FLAGS), st.booleans()),
    st.lists(st.sampled_from(DETECTED_LABELS), unique=True),
)
def test_flags_survive_a_round_trip(values, failed):
    labels = DetectedLabels(**values, failed_detections=tuple(failed))
    again = DetectedLabels.model_validate_json(labels.model_dump_json())
    assert labels == again
    for label in FLAGS:
        expected = None if label in failed else values.get(label, False)
        assert expected is again.flag(label) is again.flag(camel_case(label))
