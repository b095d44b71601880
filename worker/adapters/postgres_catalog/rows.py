"""Workflows as rows, and back."""

from __future__ import annotations

import hashlib

from pydantic import TypeAdapter, ValidationError

from worker.domain.values.errors import CatalogUnavailable
from worker.domain.values.workflows import Workflow

_documents = TypeAdapter(Workflow)


def document_of(workflow: Workflow) -> str:
    """The whole workflow as JSON."""
    return _documents.dump_json(workflow).decode()


def hash_of(document: str) -> str:
    """SHA-256 of a document, in hexadecimal."""
    return hashlib.sha256(document.encode()).hexdigest()


def storable(text: str) -> bool:
    """True if PostgreSQL can hold the text. Other texts cannot be in the database either."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def workflow_of(document: str) -> Workflow:
    """The workflow of a document. Raises CatalogUnavailable."""
    try:
        return _documents.validate_json(document)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise CatalogUnavailable(f"a workflow in the database cannot be read: {where}") from None
