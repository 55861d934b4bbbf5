"""Listening tests: a study file, sessions laid out from it, a server and its page, and exact answers."""
