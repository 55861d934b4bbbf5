"""Training of denoisers, and what they are trained on."""
