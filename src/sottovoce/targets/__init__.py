"""Models as targets: families, adapters, and the zoo that this project ships."""
