"""Django: inspectdb, and models made by its schema editor, read through its ORM with server-side cursors."""

import io
import os

import django
from django.conf import settings

from checks import same

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"], "HOST": os.environ["PGHOST"],
                           "PORT": os.environ["PGPORT"], "OPTIONS": {"options": "-c search_path=c_django"}}},
    INSTALLED_APPS=[], USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()
from django.core.management import call_command  # noqa: E402
from django.db import connection, models, transaction  # noqa: E402

with connection.cursor() as cur:
    cur.execute("DROP SCHEMA IF EXISTS c_django CASCADE")
    cur.execute("CREATE SCHEMA c_django")


class Person(models.Model):
    name = models.CharField(max_length=40, unique=True)
    born = models.DateField(null=True, db_index=True)
    score = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    active = models.BooleanField(default=True)
    extra = models.JSONField(default=dict)

    class Meta:
        app_label = "c"
        db_table = "person"


with connection.schema_editor() as editor:
    editor.create_model(Person)
with connection.cursor() as cur:
    cur.execute("CREATE MATERIALIZED VIEW active_people AS SELECT active, count(*) AS n FROM person GROUP BY active")
Person.objects.bulk_create([Person(name=f"p{i}", score=i, active=i % 2 == 0, extra={"i": i}) for i in range(50)])
same("filter", [p.name for p in Person.objects.filter(score__gte=48).order_by("id")], ["p48", "p49"])
same("json", Person.objects.get(extra__i=7).name, "p7")
with transaction.atomic():
    Person.objects.filter(name="p1").update(score="9.50")
    p, made = Person.objects.get_or_create(name="new", defaults={"score": 1})
    same("get_or_create", made, True)
    same("update_or_create", Person.objects.update_or_create(name="new", defaults={"score": 2})[1], False)
same("iterator", len(list(Person.objects.order_by("id").iterator(chunk_size=7))), 51)
same("aggregate", Person.objects.aggregate(n=models.Count("id"), top=models.Max("score"))["n"], 51)
with connection.cursor() as cur:
    cur.execute("REFRESH MATERIALIZED VIEW active_people")
    cur.execute("SELECT active, n FROM active_people ORDER BY active")
    same("view", cur.fetchall(), [(False, 25), (True, 26)])
    same("table names", connection.introspection.table_names(cur, include_views=True), ["active_people", "person"])
    constraints = connection.introspection.get_constraints(cur, "person")
    same("primary key", [c["columns"] for c in constraints.values() if c["primary_key"]], [["id"]])
    same("unique", [c["columns"] for c in constraints.values() if c["unique"] and not c["primary_key"]], [["name"]])
    same("sequences", connection.introspection.get_sequences(cur, "person"), [{"name": "person_id_seq", "table": "person", "column": "id"}])
out = io.StringIO()
call_command("inspectdb", include_views=True, stdout=out)
text = out.getvalue()
for want in ("class Person(models.Model)", "id = models.BigAutoField(primary_key=True)", "name = models.CharField(unique=True, max_length=40)", "born = models.DateField(blank=True, null=True)",
             "score = models.DecimalField(max_digits=8, decimal_places=2)", "active = models.BooleanField()", "extra = models.JSONField()", "class ActivePeople(models.Model)"):
    same(f"inspectdb: {want}", want in text, True)
same("no errors", "Unable to inspect" in text, False)
with connection.schema_editor() as editor:
    field = models.IntegerField(null=True)
    field.set_attributes_from_name("height")
    editor.add_field(Person, field)
    editor.execute("DROP MATERIALIZED VIEW active_people")
with connection.cursor() as cur:
    cur.execute("DROP SCHEMA c_django CASCADE")
