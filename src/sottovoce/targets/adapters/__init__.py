"""Models of other libraries, and of users' own code, as targets."""
