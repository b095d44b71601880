"""Approval rules in Rego: the Policy port on an evaluator in a process of its own, which can be killed.

A policy is a file or a directory. Its decision is read from `package rca.approval`, or from `package
aianalysis.approval` as in the reference system: `require_approval` (a boolean), and optionally `reasons` (or
one `reason`) and `risk_factors` (`score` 0 to 100, `reason`). A `package safety` with
`validate_action(action)` must also be true for the action, and its `requires_approval(action)` must not be
(safety-aware investigation). JSON and YAML files become the `data` document.

After any failure, approval is required and the reason names it: a fault of the policy, no decision, a
decision of the wrong form, a limit that is passed.
"""

from worker.adapters.rego_policy.evaluator import Bounds, Evaluated, Evaluator
from worker.adapters.rego_policy.files import PolicyFiles, PolicySources, PolicyUnusable, read_files
from worker.adapters.rego_policy.policy import RegorusPolicy

__all__ = [
    "Bounds",
    "Evaluated",
    "Evaluator",
    "PolicyFiles",
    "PolicySources",
    "PolicyUnusable",
    "RegorusPolicy",
    "read_files",
]
