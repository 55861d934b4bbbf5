"""What records add up to: summaries, tidy rows and curves."""
