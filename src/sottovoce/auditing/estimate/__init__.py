"""Before a run: what it would cost, measured on a clip or two."""
