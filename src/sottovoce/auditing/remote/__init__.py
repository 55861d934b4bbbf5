"""Runs with a remote folder, at an address such as s3://bucket/folder."""
