"""A cluster that nothing can be read from: requests wait in the queue, readiness says why, and no incident is burned."""

from __future__ import annotations

import json

import pytest

from schemas.analysis import AnalysisResult
from schemas.taxonomy import RequestKind
from tests.fakes.faulty_api import Fault, FaultPlan
from tests.integration.test_history import ANSWER, INCIDENT
from tests.integration.test_tool_faults import CASE
from tests.pipeline import final, running
from tests.waiting import until
from worker.app.health import problems
from worker.sandbox.cluster_server import Rights, shipped_rights

OUTAGES = {
    "credentials": [Fault(status=401)],
    "down": [Fault(drop=True)],
    "proxy": [Fault(status=502, page="<html>bad gateway</html>")],
    "no rights": [],
}


@pytest.mark.process
@pytest.mark.parametrize("name", OUTAGES)
async def test_requests_wait_until_the_cluster_can_be_read(tmp_path, name):
    body = json.dumps(INCIDENT).encode()
    async with running(lambda request, number: final(ANSWER), CASE, tmp_path, call_seconds=1.0) as run:
        run.cluster.rights = Rights() if name == "no rights" else shipped_rights()
        run.cluster.faults = FaultPlan(OUTAGES[name])
        async with run.client.waiting(RequestKind.INCIDENT, body) as waiter:
            submitted = await run.client.submit(body, RequestKind.INCIDENT)
            await until(lambda: problems(run.worker.checks))
            wrong = problems(run.worker.checks)
            assert all(line.startswith("kubernetes: ") for line in wrong), wrong
            assert [] == run.llm.requests
            run.cluster.rights, run.cluster.faults = shipped_rights(), FaultPlan()
            result = await run.client.outcome(waiter, submitted, 60)
    assert isinstance(result, AnalysisResult)
    assert not [note for note in result.notes if note.startswith("unknown: ")]
