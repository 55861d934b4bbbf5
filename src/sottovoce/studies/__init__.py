"""Studies: one for each table or figure that sottovoce makes again, beside what its paper reports."""
