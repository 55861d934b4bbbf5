"""Training of the shipped recogniser, and the strings of words it learns from."""
