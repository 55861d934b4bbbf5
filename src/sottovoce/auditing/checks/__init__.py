"""The sanity pass: what makes the figures of a run doubtful."""
