"""A run whose folder lies far away, at an address such as s3://bucket/folder."""
