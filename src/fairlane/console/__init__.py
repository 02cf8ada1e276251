"""The page: what browsers are served besides the API, and what is kept in memory for it."""
