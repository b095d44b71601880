"""The texts of an approval, which quote the cluster, the model and the policy."""

from __future__ import annotations

from collections.abc import Callable

from schemas.analysis import Approval


def without_secrets(approval: Approval, redact: Callable[[str], str]) -> Approval:
    """The same approval with every reason, factor and risk factor redacted."""
    factors = (f.model_copy(update={"detail": redact(f.detail)}) for f in approval.factors)
    risks = (f.model_copy(update={"reason": redact(f.reason)}) for f in approval.risk_factors)
    return approval.model_copy(
        update={
            "reasons": tuple(map(redact, approval.reasons)),
            "factors": tuple(factors),
            "risk_factors": tuple(risks),
            "would_reasons": tuple(map(redact, approval.would_reasons)),
        }
    )
