"""Adversarial sparsity: how far from a random direction the nearest perturbation that works lies."""
