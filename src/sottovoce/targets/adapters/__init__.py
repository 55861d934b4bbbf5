"""Models of other libraries, and of one's own code, as targets."""
