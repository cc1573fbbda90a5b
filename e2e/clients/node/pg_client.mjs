// node-postgres with pg-cursor and pg-query-stream; postgres.js.
import { on } from 'node:events'
import pg from 'pg'
import Cursor from 'pg-cursor'
import QueryStream from 'pg-query-stream'
import postgres from 'postgres'
import { code, same } from './checks.mjs'

const c = new pg.Client({ application_name: 'pg_client' })
await c.connect()
await c.query('DROP SCHEMA IF EXISTS c_node CASCADE; CREATE SCHEMA c_node; SET search_path = c_node')
await c.query('CREATE TABLE t (id int PRIMARY KEY, s text, n numeric, at timestamptz, a int[], j jsonb, b bytea, ok bool, big bigint)')
await c.query('CREATE MATERIALIZED VIEW v AS SELECT ok, count(*) AS n FROM t GROUP BY ok')
const at = new Date('2024-02-29T01:02:03.004Z')
await c.query('INSERT INTO t VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)', [1, 'x', '1.50', at, [1, 2], { k: 'v' }, Buffer.from([0, 255]), true, '9007199254740993'])
same('round trip', (await c.query('SELECT * FROM t')).rows, [
  { id: 1, s: 'x', n: '1.50', at, a: [1, 2], j: { k: 'v' }, b: Buffer.from([0, 255]), ok: true, big: '9007199254740993' },
])
const many = await c.query('INSERT INTO t (id, ok) SELECT g, g % 2 = 0 FROM generate_series(2, 500) g')
same('command and rows', [many.command, many.rowCount], ['INSERT', 499])
await c.query('REFRESH MATERIALIZED VIEW v')
same('view', (await c.query({ text: 'SELECT ok, n FROM v ORDER BY ok', rowMode: 'array' })).rows, [[false, '249'], [true, '251']])
const several = await c.query("SELECT 1 AS a; SELECT 2 AS b, 'x' AS c")
same('several results', several.map((r) => r.rows), [[{ a: 1 }], [{ b: 2, c: 'x' }]])

const cursor = c.query(new Cursor('SELECT id FROM t WHERE id > $1 ORDER BY id', [10]))
same('cursor', (await cursor.read(3)).map((r) => r.id), [11, 12, 13])
same('cursor goes on', (await cursor.read(2)).map((r) => r.id), [14, 15])
await cursor.close()
let sum = 0
for await (const row of c.query(new QueryStream('SELECT id FROM t ORDER BY id', [], { batchSize: 37 }))) sum += row.id
same('stream', sum, (500 * 501) / 2)
for (let i = 1; i < 5; i++) {
  same('named', (await c.query({ name: 'one', text: 'SELECT s, id FROM t WHERE id = $1', values: [i] })).rows[0].id, i)
}
await code('unique', '23505', () => c.query('INSERT INTO t (id) VALUES (1)'))
await c.query('BEGIN')
await code('undefined table', '42P01', () => c.query('SELECT * FROM nope'))
await code('failed block', '25P02', () => c.query('SELECT 1'))
await c.query('ROLLBACK')
await c.query('LISTEN news')
const heard = on(c, 'notification')
await c.query("NOTIFY news, 'hello'")
const { value: [note] } = await heard.next()
same('notification', [note.channel, note.payload], ['news', 'hello'])
const pool = new pg.Pool({ max: 4 })
same('pool', await Promise.all([...Array(20).keys()].map(async (i) => (await pool.query('SELECT $1::int AS x', [i])).rows[0].x)), [...Array(20).keys()])
await pool.end()

const sql = postgres({ connection: { search_path: 'c_node' }, onnotice: () => {} })
same('postgres.js', [...(await sql`SELECT id, s, a FROM t WHERE id = ${1}`)], [{ id: 1, s: 'x', a: [1, 2] }])
await sql.begin(async (tx) => {
  await tx`INSERT INTO t ${tx([{ id: 1001, s: 'p' }, { id: 1002, s: 'q' }], 'id', 's')}`
  await tx.savepoint(async (sp) => {
    await sp`DELETE FROM t`
    throw new Error('undo')
  }).catch(() => {})
})
const batches = []
await sql`SELECT id FROM t ORDER BY id`.cursor(200, (rows) => { batches.push(rows.length) })
same('postgres.js cursor', batches, [200, 200, 102])
await sql.end()

await c.query('DROP SCHEMA c_node CASCADE')
await c.end()
