"""Where tasks are done: in this process, in several, or on a cluster."""
