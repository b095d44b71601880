"""Kubernaut's DataStorage over HTTP: the history of remediations, and the catalog of workflows."""

from worker.adapters.datastorage.catalog import DataStorageCatalog
from worker.adapters.datastorage.client import DataStorageClient
from worker.adapters.datastorage.history import DataStorageHistory

__all__ = ["DataStorageCatalog", "DataStorageClient", "DataStorageHistory"]
