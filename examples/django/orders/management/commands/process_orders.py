"""The worker: python manage.py process_orders. It counts the pages of an order and writes them into its row."""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import close_old_connections, connections

from fairlane import Worker
from orders.models import Order

worker = Worker(settings.FAIRLANE_URL, slots=4)


@worker.handler("order")
def count_pages(document):
    close_old_connections()  # as Django does before a request: one that the server has closed meanwhile is opened anew
    pages = document.payload["text"].count("\f") + 1
    Order.objects.filter(id=document.payload["order"]).update(pages=pages)  # a repeated attempt writes the same again
    return {"pages": pages}


class Command(BaseCommand):
    help = "Process orders until SIGTERM or Ctrl-C."

    def handle(self, *args, **options):
        connections.close_all()  # the handlers' processes are forks of this one, and a connection must not be shared
        worker.run()
