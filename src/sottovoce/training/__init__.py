"""Training of the models that this project ships."""
