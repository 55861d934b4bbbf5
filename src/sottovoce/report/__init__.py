"""From records to one page: `report.html`, which opens without a network."""
