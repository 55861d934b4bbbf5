"""One listener's session: screens in order, answers, and simulated listeners that give them."""
