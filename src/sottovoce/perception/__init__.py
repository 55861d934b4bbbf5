"""What people hear of a perturbation."""
