"""Training of detectors of pathological speech."""
