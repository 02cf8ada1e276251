"""The settings of a small project: one app, one database, and the queue in it."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

DATABASE_URL = os.environ["DATABASE_URL"]  # postgresql://user:password@host:5432/database
_url = urlsplit(DATABASE_URL)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.removeprefix("/"),
        "USER": unquote(_url.username or ""),
        "PASSWORD": unquote(_url.password or ""),
        "HOST": _url.hostname,
        "PORT": _url.port or 5432,
    }
}
FAIRLANE_URL = DATABASE_URL  # the same database: only so can an order and its document share a transaction

INSTALLED_APPS = ["orders"]
ROOT_URLCONF = "orders.urls"
SECRET_KEY = os.environ.get("SECRET_KEY", "for trials only")
DEBUG = False
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
