"""Linear redundancy pruning: a network in, a smaller one out."""
