"""Running a plan: the driver, the executor, its tasks, and the folder that holds the records."""
