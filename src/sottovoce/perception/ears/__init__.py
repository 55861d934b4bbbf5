"""Models of a listener: how far apart two clips are, and how likely a listener hears that."""
