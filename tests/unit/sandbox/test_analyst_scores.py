"""The offline analyst on whole incidents: the corpus, and small ones of families that the corpus lacks.

Everything runs in this process: the real enrichment, prompt, tools, loop and verdict, with the analyst as the model.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from schemas.analysis import Status
from tests.corpus_files import CORPUS, full_cases_dir
from tests.fakes.analyst_scoring import Ran, figures, run_case
from tests.fakes.manifests import event, pod
from worker.adapters.file_catalog import FileCatalog
from worker.domain.untrusted.injection import injection_warning

SCENARIOS = Path(__file__).parents[2] / "analyst_scenarios"
NAMES = sorted(p.parent.name for p in SCENARIOS.glob("*/incident.json"))


async def _run_all(directories: Sequence[Path], catalog: Path) -> list[Ran]:
    files = await FileCatalog.open(catalog)
    return [await run_case(d, files) for d in directories]


def _cases(parent: Path) -> list[Path]:
    return sorted(p.parent for p in parent.glob("*/incident.json"))


def _both_catalogs(directory: Path) -> Path:
    together = shutil.copytree(CORPUS / "catalog", directory / "catalog")
    for file in (SCENARIOS / "catalog").iterdir():
        shutil.copyfile(file, together / file.name)
    return together


@cache
def corpus_runs(*, large_catalog: bool) -> Sequence[Ran]:
    with TemporaryDirectory() as place:
        catalog = _both_catalogs(Path(place)) if large_catalog else CORPUS / "catalog"
        return asyncio.run(_run_all(_cases(full_cases_dir(Path(place))), catalog))


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> FileCatalog:
    """The workflows of the corpus and those that the scenarios need."""
    return asyncio.run(FileCatalog.open(_both_catalogs(tmp_path_factory.mktemp("workflows"))))


@pytest.mark.slow
@pytest.mark.unmeasured
def test_only_the_incident_with_planted_text_is_warned_about() -> None:
    said = injection_warning([]).removesuffix(".").rstrip()
    runs = corpus_runs(large_catalog=False)
    warned = [ran.name for ran in runs if any(w.startswith(said) for w in ran.result.warnings)]
    assert ["012-prompt-injection-in-configmap"] == warned


@pytest.mark.parametrize("large_catalog", [False, True])
@pytest.mark.slow
@pytest.mark.unmeasured
def test_the_corpus_is_scored(large_catalog: bool) -> None:
    found = figures(corpus_runs(large_catalog=large_catalog))
    print(found)
    assert found["cases"] == 23
    assert found["acceptable"] >= 23
    assert found["best"] >= 23
    assert found["signal"] >= 22
    assert found["workflow"] >= 23
    assert found["required"] >= 17
    assert found["wrong"] == 0
    assert found["median_calls"] <= 5


def test_summaries_name_the_facts() -> None:
    missing = {r.name: r.missing_keywords for r in corpus_runs(large_catalog=False) if r.missing_keywords}
    assert len(missing) <= 2, missing


def test_no_run_takes_more_than_its_budget() -> None:
    for ran in corpus_runs(large_catalog=True):
        assert ran.result.usage.llm_calls <= 10, ran.name
        assert ran.result.usage.tool_calls <= 30, ran.name
        assert ran.result.usage.input_tokens <= 90_000, ran.name


def test_answers_are_accepted_the_first_time() -> None:
    assert [] == [r.name for r in corpus_runs(large_catalog=True) if len(r.result.validation_attempts) > 1]


NOBODY_SAW = {
    "25-false-signal-types": ("FailedScheduling", "CrashLoopBackOff"),
    "21-cause-stands-in-an-event-and-is-not-read": ("PodPending",),
    "06-inplace-resize-infeasible-called-resolved": ("PodPending",),
}
"""Signal types that earlier versions gave to reports without having seen them."""
REPORTS = sorted(path.parent for path in (CORPUS / "reports").glob("*/*/expected.json"))


@pytest.mark.parametrize("case", REPORTS, ids=lambda case: f"{case.parent.name}/{case.name}")
async def test_a_report_from_the_field_is_answered_rightly(case: Path) -> None:
    ran = await run_case(case, await FileCatalog.open(CORPUS / "catalog"))
    assert ran.acceptable, ran.resource
    assert ran.workflow_fits, ran.workflow
    assert not ran.missing_keywords
    assert ran.result.status is not Status.RESOLVED
    told = f"{ran.result.analysis} {ran.result.root_cause_analysis}".lower()
    assert not [said for said in ran.expected["not_root_cause"] if said.lower() in told]
    assert ran.result.root_cause_analysis
    assert ran.result.root_cause_analysis.signal_type not in NOBODY_SAW.get(case.parent.name, ())


CORRECTED = {"other-namespace-down", "webhook-cert-expired"}
"""The best answer is an object in another namespace that was never read (gone, or a Secret): the verdict refuses it, and
the analyst names the workload that needs it, which is acceptable."""


@pytest.mark.parametrize("name", NAMES)
async def test_a_small_incident(name: str, catalog: FileCatalog) -> None:
    ran = await run_case(SCENARIOS / name, catalog)
    assert ran.acceptable if name in CORRECTED else ran.best, ran.resource
    assert ran.workflow_fits, ran.workflow
    assert not ran.missing_keywords
    if ran.expected["signal_type"] and ran.expected["signal_type"] in _known_signals(ran):
        assert ran.signal_fits


def _known_signals(ran: Ran) -> str:
    """Names the request knew: those that the catalog lists appear in what was said."""
    return str(ran.requests[-1])


@pytest.mark.slow
@pytest.mark.unmeasured
async def test_events_of_an_unrelated_namespace_change_no_answer(tmp_path: Path) -> None:
    """The API server lists them first: by namespace and name, not by time."""
    case = shutil.copytree(CORPUS / "cases" / "025-evictions-node-memory-pressure", tmp_path / "case")
    catalog = await FileCatalog.open(CORPUS / "catalog")
    quiet = await run_case(case, catalog)
    noise = [
        event(pod(f"n-{i}", namespace="aaa-busy"), "Noise", f"{i}", type="Warning" if i % 3 else "Normal")
        for i in range(5_001)
    ]
    (case / "cluster" / "noise.json").write_text(json.dumps({"kind": "List", "items": noise}))
    busy = await run_case(case, catalog)
    assert quiet.result.affected_resource == busy.result.affected_resource
    assert quiet.result.selected_workflow == busy.result.selected_workflow
