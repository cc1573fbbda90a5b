"""asyncpg: binary everything, statement cache, cursors inside transactions, COPY, type introspection."""

import asyncio
import datetime
import decimal
import io
import os

import asyncpg

from checks import same


async def main():
    conn = await asyncpg.connect(server_settings={"application_name": "asyncpg_client"})
    await conn.execute("DROP SCHEMA IF EXISTS c_asyncpg CASCADE; CREATE SCHEMA c_asyncpg")
    await conn.execute("SET search_path = c_asyncpg")
    await conn.execute("CREATE TYPE level AS ENUM ('low', 'high')")
    await conn.execute("CREATE TABLE t (id bigint PRIMARY KEY, s text, n numeric(12,3), ts timestamptz, a text[], j jsonb, l level, i interval, u uuid)")
    await conn.execute("CREATE MATERIALIZED VIEW v AS SELECT l, count(*) AS n FROM t GROUP BY l")
    at = datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
    await conn.execute("INSERT INTO t (id, s, n, ts, a, j, l, i) VALUES ($1,$2,$3,$4,$5,$6,$7,$8)", 1, "x", decimal.Decimal("1.250"), at, ["p", None], '{"a": 1}', "high",
                       datetime.timedelta(hours=3))
    row = await conn.fetchrow("SELECT id, s, n, ts, a, j, l, i, u FROM t")
    same("round trip", tuple(row), (1, "x", decimal.Decimal("1.250"), at, ["p", None], '{"a": 1}', "high", datetime.timedelta(hours=3), None))
    await conn.executemany("INSERT INTO t (id, l) VALUES ($1, $2)", [(i, "low") for i in range(2, 50)])
    await conn.execute("REFRESH MATERIALIZED VIEW v")
    same("view", [tuple(r) for r in await conn.fetch("SELECT l, n FROM v ORDER BY l")], [("low", 48), ("high", 1)])
    async with conn.transaction():
        same("cursor", [r["id"] async for r in conn.cursor("SELECT id FROM t ORDER BY id", prefetch=5)], list(range(1, 50)))
        cur = await conn.cursor("SELECT id FROM t WHERE id > $1 ORDER BY id", 10)
        same("forward", await cur.forward(3), 3)
        same("fetch", [r["id"] for r in await cur.fetch(2)], [14, 15])
    same("copy records", await conn.copy_records_to_table("t", records=[(100 + i, "r") for i in range(20)], columns=["id", "s"]), "COPY 20")
    out = io.BytesIO()
    await conn.copy_from_query("SELECT id, s FROM t WHERE id >= $1 ORDER BY id", 118, output=out, format="csv")
    same("copy from query", out.getvalue(), b"118,r\n119,r\n")
    same("copy to table", await conn.copy_to_table("t", source=io.BytesIO(b"200,k\n"), columns=["id", "s"], format="csv"), "COPY 1")
    st = await conn.prepare("SELECT $1::int[] AS x, $2::text AS y")
    same("prepared", tuple(await st.fetchrow([1, 2], "q")), ([1, 2], "q"))
    same("attributes", [(a.name, a.type.name) for a in st.get_attributes()], [("x", "int4[]"), ("y", "text")])
    try:
        await conn.execute("INSERT INTO t (id) VALUES (1)")
    except asyncpg.UniqueViolationError as e:
        same("constraint", e.constraint_name, "t_pkey")
    try:
        async with conn.transaction():
            await conn.execute("DELETE FROM t")
            raise KeyError
    except KeyError:
        pass
    same("rolled back", await conn.fetchval("SELECT count(*) FROM t"), 70)
    heard = asyncio.get_running_loop().create_future()
    await conn.add_listener("news", lambda c, pid, channel, payload: heard.done() or heard.set_result(payload))
    await conn.execute("SELECT pg_notify('news', 'hi')")
    same("notify", await asyncio.wait_for(heard, 10), "hi")
    await conn.reset()
    pool = await asyncpg.create_pool(min_size=2, max_size=4)
    same("pool", sorted(await asyncio.gather(*[pool.fetchval("SELECT $1::int", i) for i in range(20)])), list(range(20)))
    await pool.close()
    try:
        await conn.fetch("SELECT pg_sleep(60)", timeout=0.2)
        same("timeout", "no error", "a timeout")
    except asyncio.TimeoutError:
        same("cancelled and usable", await conn.fetchval("SELECT 1"), 1)
    await conn.execute("DROP SCHEMA c_asyncpg CASCADE")
    await conn.close()


asyncio.run(main())
