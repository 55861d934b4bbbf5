"""Claims as files: made from runs, checked, and guarded against strangers."""
