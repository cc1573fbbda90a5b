"""psycopg2: simple queries, client-side parameters, named cursors, COPY, notices, transactions."""

import datetime
import decimal
import io
import uuid

import psycopg2
import psycopg2.errors
import psycopg2.extras

from checks import raises, same

conn = psycopg2.connect("application_name=psycopg2_client")
same("version", conn.server_version >= 140000, True)
cur = conn.cursor()
cur.execute("DROP SCHEMA IF EXISTS c_psycopg2 CASCADE")
cur.execute("CREATE SCHEMA c_psycopg2")
cur.execute("SET search_path = c_psycopg2")
conn.commit()

cur.execute(
    """CREATE TABLE orders (id serial PRIMARY KEY, customer text NOT NULL, amount numeric(10,2), at timestamptz,
       tags text[], doc jsonb, ref uuid, day date, raw bytea, ok bool, ratio float8, lasts interval)"""
)
cur.execute("CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer")
conn.commit()

psycopg2.extras.register_uuid()
ref = uuid.UUID("12345678-1234-5678-1234-567812345678")
at = datetime.datetime(2024, 2, 29, 12, 30, 0, 125000, tzinfo=datetime.timezone.utc)
cur.execute(
    "INSERT INTO orders (customer, amount, at, tags, doc, ref, day, raw, ok, ratio, lasts) VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s) RETURNING id",
    ("ann", decimal.Decimal("10.50"), at, ["a", "b,c", None], psycopg2.extras.Json({"k": [1, None]}), ref, datetime.date(2024, 2, 29),
     psycopg2.Binary(b"\x00\xffa"), True, 1.5, datetime.timedelta(days=1, seconds=5)),
)
same("returning", cur.fetchone(), (1,))
cur.execute("SELECT customer, amount, at, tags, doc, ref, day, raw, ok, ratio, lasts FROM orders")
row = list(cur.fetchone())
row[7] = bytes(row[7])
same("round trip", row, ["ann", decimal.Decimal("10.50"), at, ["a", "b,c", None], {"k": [1, None]}, ref, datetime.date(2024, 2, 29), b"\x00\xffa", True, 1.5,
                         datetime.timedelta(days=1, seconds=5)])
psycopg2.extras.execute_values(cur, "INSERT INTO orders (customer, amount) VALUES %s", [("bob", i) for i in range(100)])
same("execute_values", cur.rowcount, 100)
conn.commit()

cur.execute("REFRESH MATERIALIZED VIEW totals")
conn.commit()
cur.execute("SELECT * FROM totals ORDER BY customer")
same("view", cur.fetchall(), [("ann", decimal.Decimal("10.50"), 1), ("bob", decimal.Decimal("4950.00"), 100)])
same("names", [d.name for d in cur.description], ["customer", "total", "n"])
same("types", [d.type_code for d in cur.description], [25, 1700, 20])

with conn.cursor(name="server side") as named:
    named.itersize = 7
    named.execute("SELECT id, customer FROM orders ORDER BY id")
    same("named cursor", [r[0] for r in named], list(range(1, 102)))
with conn.cursor(name="scrolled", scrollable=True) as named:
    named.execute("SELECT id FROM orders ORDER BY id")
    same("fetchmany", named.fetchmany(3), [(1,), (2,), (3,)])
    named.scroll(-2)
    same("scroll", named.fetchone(), (2,))
    named.scroll(50, mode="absolute")
    same("absolute", named.fetchone(), (51,))
conn.commit()
hold = conn.cursor(name="held", withhold=True)
hold.execute("SELECT id FROM orders ORDER BY id")
conn.commit()
same("with hold", hold.fetchmany(2), [(1,), (2,)])
hold.close()
conn.commit()

cur.copy_expert("COPY orders (id, customer, amount) FROM STDIN WITH (FORMAT csv, HEADER)", io.StringIO('id,customer,amount\n1001,"cy, d",1.25\n1002,cy,\n'))
same("copy in", cur.rowcount, 2)
out = io.StringIO()
cur.copy_expert("COPY (SELECT id, customer, amount FROM orders WHERE id > 1000 ORDER BY id) TO STDOUT", out)
same("copy out", out.getvalue(), "1001\tcy, d\t1.25\n1002\tcy\t\\N\n")
buf = io.StringIO("2001\tdi\t7.00\n")
cur.copy_from(buf, "orders", columns=("id", "customer", "amount"))
conn.commit()

raises("unique", "23505", psycopg2.errors.UniqueViolation, lambda: cur.execute("INSERT INTO orders (id, customer) VALUES (1001, 'x')"))
raises("failed block", "25P02", psycopg2.errors.InFailedSqlTransaction, lambda: cur.execute("SELECT 1"))
conn.rollback()
cur.execute("SAVEPOINT a")
raises("undefined", "42703", psycopg2.errors.UndefinedColumn, lambda: cur.execute("SELECT nope FROM orders"))
cur.execute("ROLLBACK TO SAVEPOINT a")
cur.execute("DROP TABLE IF EXISTS missing")
same("notice", 'table "missing" does not exist, skipping' in conn.notices[-1], True)
conn.commit()
conn.autocommit = True
cur.execute("SELECT count(*) FROM orders")
same("count", cur.fetchone(), (104,))
cur.callproc("lower", ["ABC"])
same("callproc", cur.fetchone(), ("abc",))
cur.execute("DROP SCHEMA c_psycopg2 CASCADE")
conn.close()
