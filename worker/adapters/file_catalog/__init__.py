"""The workflow catalog in a directory of YAML files: loading, checking, matching in memory."""

from worker.adapters.file_catalog.catalog import FileCatalog
from worker.adapters.file_catalog.loading import lint, read_directory
from worker.adapters.file_catalog.yaml_documents import CatalogProblem

__all__ = ["CatalogProblem", "FileCatalog", "lint", "read_directory"]
