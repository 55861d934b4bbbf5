"""`sottovoce view`: runs, reports and records in the browser."""
