"""The route table: every path of the service, on one screen."""

from __future__ import annotations

from .api import campaigns, events
from .public import engagement, unsubscribe
from .route import Route, Scope

__all__ = ["ROUTES", "Route", "Scope"]

ROUTES: tuple[Route, ...] = (*campaigns.ROUTES, *events.ROUTES, *unsubscribe.ROUTES, *engagement.ROUTES)
