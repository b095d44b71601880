"""A finished request as a page: for a browser, for a ticket, for a chat."""

from worker.app.pages.incident import IncidentPage, incident_page
from worker.app.pages.rendering import as_html, as_markdown, environment

__all__ = ["IncidentPage", "as_html", "as_markdown", "environment", "incident_page"]
