"""Failures a user can do something about, and what they can do."""

from __future__ import annotations

from worker.adapters.ed25519_keys import KeyUnusable
from worker.adapters.pydantic_ai_model import ModelUnusable
from worker.adapters.rego_policy import PolicyUnusable
from worker.app.client import SubmitError
from worker.app.embedded import EmbeddedError
from worker.app.intake import IntakeError
from worker.app.operations import OperationError
from worker.app.settings import ConfigurationError
from worker.domain.values.errors import CatalogUnavailable, ClusterError, Unavailable
from worker.sandbox.cluster_files import SnapshotError
from worker.sandbox.nats_server import NatsServerError

KNOWN = (
    CatalogUnavailable,
    ClusterError,
    ConfigurationError,
    EmbeddedError,
    IntakeError,
    KeyUnusable,
    ModelUnusable,
    NatsServerError,
    OperationError,
    OSError,
    PolicyUnusable,
    SnapshotError,
    SubmitError,
    Unavailable,
)

NO_STREAM = "err_code=10059"
"""JetStream's code for a stream that does not exist (nats-server, errors.json)."""


def explain(problem: BaseException) -> str:
    """What is wrong and what to do, for the terminal."""
    match problem:
        case ClusterError():
            said = f"the cluster cannot be used: {problem.message}; check RCA_KUBERNETES__KUBECONFIG"
        case PolicyUnusable():
            said = f"{problem}; RCA_POLICY__PATH names the policy"
        case ModelUnusable():
            said = f"RCA_LLM__MODEL: {problem}"
        case Unavailable() if NO_STREAM in str(problem):
            said = f"NATS: {str(problem).partition(':')[0]}: there is no such stream; run `rca provision`"
        case NatsServerError() | Unavailable():
            said = f"NATS: {problem}"
        case OSError(filename=str(name), strerror=why):
            said = f"{name}: {why}"
        case _:
            said = str(problem)
    return said
