"""The addresses."""

from __future__ import annotations

from django.urls import path

from . import views

urlpatterns = [path("orders", views.create_order), path("orders/<int:id>", views.read_order)]
