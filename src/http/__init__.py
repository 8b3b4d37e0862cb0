"""The HTTP service: JSON API, webhooks in, unsubscribe pages, live feed."""
