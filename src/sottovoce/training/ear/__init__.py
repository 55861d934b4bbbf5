"""Training of the learned ear from answers "same" or "different"."""
