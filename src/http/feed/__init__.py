"""The live feed: one reader of the sealed log per process, and any number of streams out of what it has read."""
