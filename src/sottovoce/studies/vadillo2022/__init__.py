"""Vadillo and Santana (2022): universal perturbations of a keyword classifier, and how loud they are."""
