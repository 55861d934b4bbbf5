"""Certified radii of a corpus, clip by clip, and the folder that holds them."""
