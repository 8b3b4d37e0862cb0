"""What the events mean now: replay, verify and the views of the live tables."""
