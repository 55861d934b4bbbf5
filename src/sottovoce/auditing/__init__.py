"""From a plan to records: what to run, running it, and adding it up."""
