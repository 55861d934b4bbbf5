"""The steps of the database, from an empty one to today's; a file each."""
