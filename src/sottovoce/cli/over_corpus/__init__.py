"""Verbs that run over a corpus and record clip by clip, without a grid of attacks."""
