"""Training of the shipped keyword classifier."""
