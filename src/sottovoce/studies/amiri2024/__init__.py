"""Amiri and Kodrasi (2024): detectors of pathological speech under attack."""
