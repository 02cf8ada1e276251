"""Django's commands: python manage.py migrate, runserver, process_orders."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "orders.settings")
execute_from_command_line(sys.argv)
