"""The core, in the order of use: batch, target, transform, goal, budget, attack, metric, record."""
