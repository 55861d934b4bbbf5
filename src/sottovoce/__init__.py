"""Sottovoce audits speech models: it attacks them, measures what was added, and shows it."""

__version__ = "0.1.0.dev1"
