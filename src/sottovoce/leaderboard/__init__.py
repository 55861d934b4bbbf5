"""Comparing runs: claims as files, a static site of them, a check that runs one again, a viewer."""
