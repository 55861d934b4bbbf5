"""What is to be run: plan files, grids of plans, cells, rules and presets."""
