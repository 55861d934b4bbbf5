"""Attacks, one family a file. Names and modules are in `sottovoce.registry`."""
