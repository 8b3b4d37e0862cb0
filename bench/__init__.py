"""Measurements: what a recipient costs, beside what people would use instead; ratios of one run."""
