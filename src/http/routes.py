"""The route table: every path of the service, on one screen."""

from __future__ import annotations

from .api import (
    actions,
    campaigns,
    contacts,
    description,
    events,
    lists,
    messages,
    recipients,
    senders,
    suppressions,
    templates,
)
from .public import engagement, unsubscribe
from .route import Route, Scope
from .webhooks import endpoint as webhooks

__all__ = ["ROUTES", "Route", "Scope"]

ROUTES: tuple[Route, ...] = (
    *campaigns.ROUTES,
    *actions.ROUTES,
    *recipients.ROUTES,
    *events.ROUTES,
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
