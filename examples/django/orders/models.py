"""What a customer wants to have processed."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=100)
    number = models.CharField(max_length=100)
    document = models.CharField(max_length=50, null=True)  # the id in the queue
    pages = models.IntegerField(null=True)  # what the worker found

    class Meta:
        constraints = [
            models.UniqueConstraint(  # PostgreSQL checks it at the commit
                fields=["customer", "number"], name="ordered_once", deferrable=models.Deferrable.DEFERRED
            )
        ]
