"""What the studies of the thesis run: plans by name, and the setups that run them or read them back."""
