"""From answers to statistics, tables, figures and a results page."""
