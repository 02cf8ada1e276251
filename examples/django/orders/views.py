"""Orders over HTTP: a row of Django and a document of the queue, in one transaction."""

from __future__ import annotations

import json

from django.db import IntegrityError, connection, transaction
from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from .models import Order
from .queue import queue


@require_POST
def create_order(request):
    new = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(customer=new["customer"], number=new["number"])
            payload = {"order": order.id, "text": new["text"]}
            receipt = queue().within(connection).submit(order.customer, payload, kind="order")
            order.document = receipt.id
            order.save()
    except IntegrityError:  # at the commit, when the document was submitted already: it is gone like the row, and cost nothing
        return JsonResponse({"error": f"{new['customer']} has ordered {new['number']} before"}, status=409)
    return JsonResponse({"order": order.id, "document": receipt.id, "priority": receipt.priority}, status=201)


@require_GET
def read_order(request, id):
    order = get_object_or_404(Order, id=id)
    state = queue().document(order.document).state
    return JsonResponse({"customer": order.customer, "number": order.number, "state": state, "pages": order.pages})
