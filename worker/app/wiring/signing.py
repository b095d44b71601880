"""The key that signs audit chains."""

from __future__ import annotations

from worker.adapters.ed25519_keys import KeyUnusable, read_signing_key
from worker.app.settings import ConfigurationError
from worker.app.settings.groups import AuditSettings
from worker.domain.values.ports import Signer


def read_signer(settings: AuditSettings) -> Signer | None:
    """The signer, if a key is named. Raises ConfigurationError."""
    if settings.signing_key_file is None:
        return None
    try:
        return read_signing_key(settings.signing_key_file)
    except KeyUnusable as e:
        raise ConfigurationError(f"RCA_AUDIT__SIGNING_KEY_FILE: {e}") from e
