"""Just noticeable differences: the adaptive rule, sessions, answers and simulated listeners."""
