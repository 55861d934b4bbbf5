"""Files that come in and go out: strict JSON and YAML, weights, and texts without private paths."""
