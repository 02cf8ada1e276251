"""The console: the web page for operators and customers, as an extension of the API."""
