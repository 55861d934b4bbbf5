"""Metrics: pure functions on tensors, and the thin objects that give them a name, a unit and an interval."""
