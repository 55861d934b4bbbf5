"""A study file: its blocks and clips, what is checked before anybody listens, and who hears what."""
