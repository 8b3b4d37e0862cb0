"""The route table: every path of the service, on one screen."""

from __future__ import annotations

from . import health, metrics
from .api import (
    actions,
    audit,
    campaigns,
    checklists,
    contacts,
    deliveries,
    description,
    events,
    lists,
    messages,
    previews,
    recipients,
    senders,
    suppressions,
    templates,
    trials,
)
from .public import engagement, front, unsubscribe
from .route import Route, Scope
from .webhooks import endpoint as webhooks

__all__ = ["ROUTES", "Route", "Scope"]

ROUTES: tuple[Route, ...] = (
    *campaigns.ROUTES,
    *actions.ROUTES,
    *checklists.ROUTES,
    *previews.ROUTES,
    *trials.ROUTES,
    *recipients.ROUTES,
    *deliveries.ROUTES,
    *events.ROUTES,
    *audit.ROUTES,
    *front.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *unsubscribe.ROUTES,
    *engagement.ROUTES,
    *webhooks.ROUTES,
    *messages.ROUTES,
    *contacts.ROUTES,
    *lists.ROUTES,
    *suppressions.ROUTES,
    *senders.ROUTES,
    *templates.ROUTES,
    *description.ROUTES,
)
