"""Models that this project defines and ships."""
