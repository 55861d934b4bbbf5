"""Olivier's thesis (2023): attacks on speech recognition, defenses, and measures of robustness."""
