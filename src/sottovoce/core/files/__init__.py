"""Reading and writing files: strict JSON and YAML, weights, and texts without private paths."""
