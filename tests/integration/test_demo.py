"""The demo as a person starts it: it works with nothing configured, and its answer follows the files."""

import json

import pytest

from tests import processes
from tests.commands import rca
from tests.corpus_files import corpus_path
from tests.example_variant import broken_configuration, unpullable_image
from tests.fakes.llm_server import Said
from tests.fakes.llm_server import serve as serve_llm
from tests.pipeline import final


def affected(document):
    resource = document["result"]["affected_resource"]
    return resource["kind"], resource["name"]


async def test_the_demo_shows_incident_evidence_cause_remedy_approval_and_cost(tmp_path):
    output = tmp_path / "run.json"
    ended = await rca("demo", "--output", str(output))
    assert 0 == ended.code, ended.err
    for heading in ("Incident", "Evidence", "Root cause", "Remediation", "model calls", str(output)):
        assert heading in ended.out
    assert "answer accepted" in ended.out
    assert max(len(line) for line in ended.out.splitlines() if str(output) not in line) <= 80
    document = json.loads(output.read_text())
    assert "completed" == document["result"]["status"]
    assert document["result"]["selected_workflow"]["parameters"]
    cause = document["result"]["root_cause_analysis"]  # of the cache, whose caller the alert is about
    assert ("OOMKilled", "basket-cache") == (cause["signal_type"], cause["affected_resource"]["name"])
    assert "request.accepted" == document["audit_events"][0]["event_type"]
    assert "response.complete" == document["audit_events"][-1]["event_type"]


async def test_the_demo_analyses_after_a_remediation_that_failed():
    ended = await rca("demo", "--recovery", "--json")
    result = ended.json()["result"]
    assert (0, "recovery", True) == (ended.code, result["kind"], result["is_recovery_attempt"])
    assert result["recovery_analysis"]["current_rca"]["summary"]


@pytest.mark.parametrize("change", [unpullable_image, broken_configuration])
async def test_the_answer_changes_when_the_cluster_files_change(change, tmp_path):
    expected = change(tmp_path / "case").affected
    shipped = (await rca("demo", "--json")).json()
    changed = (await rca("demo", str(tmp_path / "case"), "--json")).json()
    assert affected(changed) in [(ref.kind, ref.name) for ref in expected]
    assert affected(shipped) != affected(changed)


async def test_a_configured_model_answers_instead_of_the_analyst():
    answer = {
        "root_cause_analysis": {
            "summary": "Unclear.",
            "severity": "low",
            "affectedResource": {"kind": "Deployment", "name": "ml-worker", "namespace": "ml-batch"},
        },
        "selected_workflow": None,
        "confidence": 0.9,
        "investigation_outcome": "insufficient_data",
        "rationale": "not enough evidence",
    }
    case = corpus_path("cases/001-oom-shm-leak-after-limit-raises/incident.json").parent
    async with serve_llm(lambda request, number: final(answer)) as llm:
        env = {
            "RCA_LLM__MODEL": "openai-chat:mine",
            "RCA_LLM__BASE_URL": f"{llm.url}/v1",
            "RCA_LLM__API_KEY": "test-key",
        }
        ended = await rca("demo", str(case), "--json", env=env)
    result = ended.json()["result"]
    assert ("needs_human_review", "investigation_inconclusive") == (
        result["status"],
        result["human_review_reason"],
    )
    assert "mine" == llm.requests[0]["model"]


async def test_a_directory_without_an_incident_is_a_clear_error(tmp_path):
    ended = await rca("demo", str(tmp_path))
    assert 1 == ended.code
    assert "incident.json is missing" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.process
async def test_eval_scores_cases_and_ends_with_what_scripts_read(tmp_path):
    cases, catalog = tmp_path / "cases", corpus_path("catalog/restart-deployment-v1.yaml").parent
    cases.mkdir()
    for name in ("001-oom-shm-leak-after-limit-raises", "009-drain-blocked-by-pdb-at-limit"):
        (cases / name).symlink_to(corpus_path(f"cases/{name}/incident.json").parent)
    ended = await processes.rca("eval", str(cases), "--catalog", str(catalog), "--json")
    document = ended.json()
    assert 0 == ended.code
    assert {
        "cases",
        "target_right",
        "target_best",
        "signal_type_right",
        "workflow_acceptable",
        "workflow_required",
        "workflow_required_right",
        "workflow_wrong",
        "workflow_none",
        "human_review",
        "llm_calls_median",
        "input_tokens_median",
        "wall_seconds_median",
    } == set(document["total"])
    assert 2 == document["total"]["cases"] == document["total"]["target_right"]
    assert 0 == document["total"]["workflow_wrong"]
    assert "001-oom-shm-leak-after-limit-raises" == document["cases"][0]["case"]


async def test_a_request_that_cannot_be_read_is_rejected_with_its_errors(tmp_path):
    (tmp_path / "incident.json").write_text('{"incident_id": ')
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "namespaces.yaml").write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
    )
    ended = await rca("demo", str(tmp_path), "--json")
    assert 5 == ended.code
    assert '{"incident_id": ' == ended.json()["request"]
    assert "not_json" == ended.json()["result"]["code"]
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("openai-chat:gpt-5", "RCA_LLM__API_KEY"),
        ("nonsense", "provider:model"),
        ("foo:bar", "provider:model"),
        ("cohere:x", "not installed"),
    ],
)
async def test_a_model_that_cannot_be_used_says_what_to_set(model, hint):
    ended = await rca("demo", env={"RCA_LLM__MODEL": model})
    assert 1 == ended.code
    assert hint in ended.err
    assert "Traceback" not in ended.err


async def test_a_model_that_refuses_the_key_ends_the_demo_with_the_words_of_the_provider():
    def refuse(request, number):
        return Said(status=401, error={"message": "Incorrect API key provided: FAKE-1234", "type": "auth"})

    async with serve_llm(refuse) as llm:
        env = {"RCA_LLM__MODEL": "openai-chat:mine", "RCA_LLM__BASE_URL": f"{llm.url}/v1"}
        ended = await rca("demo", "--json", env={**env, "RCA_LLM__API_KEY": "FAKE-1234"})
    assert (1, "", 1) == (ended.code, ended.out, len(llm.requests))
    assert "Incorrect API key provided" in ended.err
    assert "RCA_LLM__API_KEY" in ended.err


async def test_a_model_that_cannot_be_reached_ends_the_demo():
    env = {"RCA_LLM__MODEL": "openai-chat:mine", "RCA_LLM__BASE_URL": "http://127.0.0.1:9/v1"}
    ended = await rca("demo", env={**env, "RCA_LLM__API_KEY": "none"})
    assert 1 == ended.code
    assert "error: the model does not answer: openai-chat:mine: " in ended.err
    assert "RCA_LLM__BASE_URL" in ended.err
