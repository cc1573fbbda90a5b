"""psycopg 3: the extended protocol, binary results, server cursors, pipelines, COPY in text and binary, prepared statements, type lookup."""

import datetime
import decimal
import enum

import psycopg
from psycopg.rows import dict_row
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Jsonb

from checks import raises, same

conn = psycopg.connect("application_name=psycopg3_client")
conn.execute("DROP SCHEMA IF EXISTS c_psycopg3 CASCADE")
conn.execute("CREATE SCHEMA c_psycopg3")
conn.execute("SET search_path = c_psycopg3")
conn.commit()
conn.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
conn.execute("CREATE TABLE t (id int PRIMARY KEY, s text, n numeric, ts timestamptz, a int[], j jsonb, m mood, d date, b bytea, i2 smallint, f float4)")
conn.commit()
conn.execute("CREATE MATERIALIZED VIEW v AS SELECT s, sum(n) AS total FROM t GROUP BY s")
conn.commit()

info = EnumInfo.fetch(conn, "mood")
same("enum labels", info.labels, ["sad", "ok", "happy"])
Mood = enum.Enum("Mood", {"sad": "sad", "ok": "ok", "happy": "happy"})
register_enum(info, conn, Mood)

at = datetime.datetime(2024, 3, 10, 7, 0, tzinfo=datetime.timezone.utc)
row = (1, "é", decimal.Decimal("1.50"), at, [1, 2, None], {"x": 1}, Mood.happy, datetime.date(2024, 1, 1), b"\x00\x01", 7, 0.5)
conn.execute("INSERT INTO t VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s)", row[:5] + (Jsonb(row[5]),) + row[6:])
for binary in (False, True):
    got = conn.cursor(binary=binary).execute("SELECT * FROM t").fetchone()
    same(f"round trip, binary={binary}", got, row)
conn.commit()

with conn.cursor() as cur:
    cur.executemany("INSERT INTO t (id, s, n) VALUES (%s, %s, %s)", [(i, f"s{i % 3}", i) for i in range(2, 200)])
    same("executemany", cur.rowcount, 198)
conn.commit()
conn.execute("REFRESH MATERIALIZED VIEW v")
conn.commit()
same("view", conn.execute("SELECT s, total FROM v WHERE s <> 'é' ORDER BY s").fetchall(),
     [(f"s{k}", decimal.Decimal(sum(i for i in range(2, 200) if i % 3 == k))) for k in range(3)])

for binary in (False, True):
    with conn.cursor(name="srv", binary=binary) as cur:
        cur.execute("SELECT id FROM t WHERE id > %s ORDER BY id", (10,))
        same("server cursor", cur.fetchmany(3), [(11,), (12,), (13,)])
        same("the rest", len(cur.fetchall()), 186)
conn.commit()
with conn.cursor(name="scr", scrollable=True) as cur:
    cur.execute("SELECT id FROM t ORDER BY id")
    cur.scroll(100, mode="absolute")
    same("absolute", cur.fetchone(), (101,))
conn.commit()

with conn.pipeline():
    a = conn.execute("SELECT %s::int + 1", (1,))
    b = conn.execute("INSERT INTO t (id) VALUES (1000) RETURNING id")
    c = conn.execute("SELECT count(*) FROM t")
    same("pipeline", (a.fetchone(), b.fetchone(), c.fetchone()), ((2,), (1000,), (200,)))
conn.commit()

with conn.cursor() as cur:
    with cur.copy("COPY t (id, s, n) FROM STDIN") as copy:
        for i in range(2000, 2100):
            copy.write_row((i, "c\t%d" % i, None if i % 2 else decimal.Decimal(i)))
    same("copy in", cur.rowcount, 100)
    with cur.copy("COPY t (id, d, i2) FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["int4", "date", "int2"])
        copy.write_row((3000, datetime.date(1999, 12, 31), 5))
    with cur.copy("COPY (SELECT id, s FROM t WHERE id BETWEEN 2000 AND 2001 ORDER BY id) TO STDOUT") as copy:
        copy.set_types(["int4", "text"])
        same("copy out", list(copy.rows()), [(2000, "c\t2000"), (2001, "c\t2001")])
    with cur.copy("COPY (SELECT id, d FROM t WHERE id = 3000) TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["int4", "date"])
        same("binary copy out", list(copy.rows()), [(3000, datetime.date(1999, 12, 31))])
conn.commit()


def aborted():
    with conn.cursor() as cur, cur.copy("COPY t (id) FROM STDIN") as copy:
        copy.write_row((4000,))
        raise RuntimeError("client gives up")


try:
    aborted()
except RuntimeError:
    pass
conn.rollback()
same("nothing of the aborted copy", conn.execute("SELECT count(*) FROM t WHERE id = 4000").fetchone(), (0,))

for i in range(8):
    same("prepared", conn.execute("SELECT s FROM t WHERE id = %s", (2 + i,), prepare=True).fetchone(), (f"s{(2 + i) % 3}",))
same("dict row", conn.cursor(row_factory=dict_row).execute("SELECT 1 AS one, NULL AS none").fetchone(), {"one": 1, "none": None})
raises("not null", "23502", psycopg.errors.NotNullViolation, lambda: conn.execute("INSERT INTO t (id) VALUES (NULL)"))
conn.rollback()
with conn.transaction():
    conn.execute("INSERT INTO t (id) VALUES (5000)")
    try:
        with conn.transaction():
            conn.execute("INSERT INTO t (id) VALUES (5001)")
            raise psycopg.Rollback()
    except psycopg.Rollback:
        pass
same("nested transaction", conn.execute("SELECT id FROM t WHERE id >= 5000").fetchall(), [(5000,)])
conn.commit()

try:
    notices = []
    conn.add_notice_handler(lambda d: notices.append(d.message_primary))
    conn.execute("DROP TABLE IF EXISTS missing")
    same("notice", notices, ['table "missing" does not exist, skipping'])
    conn.commit()
finally:
    conn.autocommit = True
conn.execute("LISTEN news")
conn.execute("NOTIFY news, 'hello'")
got = next(conn.notifies(timeout=10), None)
same("notify", got and (got.channel, got.payload), ("news", "hello"))
conn.execute("DROP SCHEMA c_psycopg3 CASCADE")
conn.close()
