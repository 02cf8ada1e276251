"""The HTTP API: `app.py` puts it together, `routes/` is what it offers, `access/` is what each caller may see."""
