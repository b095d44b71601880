"""The workflow catalog in PostgreSQL. Importing it raises CatalogUnavailable if asyncpg is not installed."""

from worker.adapters.postgres_catalog.catalog import PostgresCatalog
from worker.adapters.postgres_catalog.push import Pushed, embed, push

__all__ = ["PostgresCatalog", "Pushed", "embed", "push"]
