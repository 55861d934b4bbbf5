"""Clips on their way in: files, corpora, and the clips that this project ships."""
