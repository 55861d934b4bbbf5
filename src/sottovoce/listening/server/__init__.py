"""The web server: sessions in a database, clips over HTTP, limits, and the view of the researcher."""
