"""A private PostgreSQL for those who have none."""
