"""What a waveform meets, in order: batch, target, transform, goal, budget, attack, metric, record."""
