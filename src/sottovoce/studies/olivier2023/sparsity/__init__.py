"""O4: adversarial sparsity, its plans, its bench and what the thesis printed."""
