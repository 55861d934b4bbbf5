"""Manocha et al. (2020): a perceptual metric learned from just noticeable differences."""
