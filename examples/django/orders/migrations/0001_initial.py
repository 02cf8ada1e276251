"""The table of orders."""

import django.db.models.constraints
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("customer", models.CharField(max_length=100)),
                ("number", models.CharField(max_length=100)),
                ("document", models.CharField(max_length=50, null=True)),
                ("pages", models.IntegerField(null=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        deferrable=django.db.models.constraints.Deferrable["DEFERRED"],
                        fields=("customer", "number"),
                        name="ordered_once",
                    )
                ],
            },
        ),
    ]
