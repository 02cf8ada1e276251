"""The service: what people and programs reach over HTTP. `app.py` puts it together; start reading at `routes.py`."""
