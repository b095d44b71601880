"""The tiers of the tests: `make test` runs the quick ones, `make test-all` all of them with coverage.

A test is quick unless it, its parameter or its place (PLACES) has one of these markers:

process  The test starts processes: commands, workers, PostgreSQL. Not counted are those that cost next to nothing (CHEAP).
slow     The test takes more than about a second on an idle machine.

Slow tests that judge many incidents also have the marker `unmeasured`: measuring their coverage trebles their time, and
other tests reach the same lines.

Forgotten markers are found: a test without `process` cannot start a process, and tests/unit cannot open a socket.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import CI_EXAMPLES, DEV_EXAMPLES

SLOW, PROCESS = pytest.mark.slow, pytest.mark.process
PLACES = {
    "unit": (120, [pytest.mark.disable_socket]),
    "contract": (120, []),
    "ports": (180, []),
    "integration": (300, [SLOW]),
    "integration/test_pipeline.py": (300, []),
    "security": (300, [SLOW]),
    "drills": (900, [SLOW, PROCESS]),
}
"""Of a folder or file: the seconds after which a test counts as hung (the machine may be busy), and its markers."""


def _register_profiles() -> None:
    for name, count in {"ci": CI_EXAMPLES, "dev": DEV_EXAMPLES}.items():
        # machines differ: no test is judged by its time
        settings.register_profile(
            name, max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


_register_profiles()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Assign each test to its tier."""
    for item in items:
        path = item.path.relative_to(Path(__file__).parent)
        seconds, markers = PLACES.get(path.as_posix()) or PLACES[path.parts[0]]
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(seconds))
        for marker in markers:
            item.add_marker(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure no coverage of a test with the marker `unmeasured`.

    The marker `no_cover` of pytest-cov only ends one of the two measurements that go on in a process of pytest-xdist:
    the other one is that of all subprocesses (`patch` in pyproject.toml).
    """
    if item.get_closest_marker("unmeasured") is None:
        return (yield)
    tracer, tracer_of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
        threading.settrace(tracer_of_threads)


CHEAP = ("/nats-server", "/nats_watchdog.py", "/rego_policy/process.py")
_may_start_processes = True


def _refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook (PEP 578)."""
    if event == "subprocess.Popen" and not _may_start_processes:
        command = list(map(str, arguments[1]))
        if not any(word.endswith(CHEAP) for word in command):
            raise AssertionError(f"mark this test with pytest.mark.process: it starts {command}")


sys.addaudithook(_refuse_processes)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let only tests with the marker `process` start processes."""
    global _may_start_processes  # noqa: PLW0603 - an audit hook has no other state
    _may_start_processes = item.get_closest_marker("process") is not None
    try:
        return (yield)
    finally:
        _may_start_processes = True


@pytest.fixture(scope="session")
def postgres():
    """One server for tests that keep to databases of their own."""
    from tests.postgres_server import postgres_server

    with postgres_server() as server:
        yield server
