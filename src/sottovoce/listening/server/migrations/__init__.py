"""How the tables came to be, one step a file; applied when a database is opened."""
