"""Sottovoce audits speech models: it attacks them, defends them, and says whether a person could hear it."""

__version__ = "0.1.0"
