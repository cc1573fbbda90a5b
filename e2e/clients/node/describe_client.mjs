// psql's describe commands as psql 18 sends them, for each server version that it knows, through the npm package psql-describe.
import pg from 'pg'
import { describe, describeDataToString } from 'psql-describe'
import { same } from './checks.mjs'

const c = new pg.Client()
await c.connect()
await c.query(`DROP SCHEMA IF EXISTS c_describe CASCADE; CREATE SCHEMA c_describe; SET search_path = c_describe;
  CREATE TYPE colour AS ENUM ('red', 'green');
  CREATE TABLE t (id serial PRIMARY KEY, a int NOT NULL DEFAULT 7, b text UNIQUE, c colour, CHECK (a > 0));
  CREATE INDEX t_a ON t (a);
  COMMENT ON TABLE t IS 'a table';
  CREATE VIEW v AS SELECT id, a FROM t;
  CREATE FUNCTION twice(x int) RETURNS int LANGUAGE sql AS 'SELECT 2 * x';
  CREATE MATERIALIZED VIEW mv AS SELECT a, count(*) AS n FROM t GROUP BY a`)

const raw = { getTypeParser: () => (v) => v }
const run = (text) => c.query({ text, rowMode: 'array', types: raw })
const commands = ['\\d', '\\d t', '\\d mv', '\\d v', '\\d+ t', '\\d+ v', '\\d+ mv', '\\dt+', '\\dm+', '\\dv+', '\\di+', '\\ds+', '\\dn+', '\\l+', '\\du+', '\\df+', '\\dT+', '\\dx', '\\dp',
  '\\sv v', '\\sf twice', '\\d t_a', '\\d t_id_seq', '\\ddp', '\\db+', '\\dC', '\\dD', '\\dE', '\\des', '\\det', '\\dew', '\\dF', '\\dg', '\\dL', '\\do', '\\dO', '\\drds', '\\dRp', '\\dRs', '\\dA', '\\dAc',
  '\\dAf', '\\da', '\\dc', '\\dd', '\\dy', '\\dX', '\\dconfig']
for (const version of [130000, 140000, 150000, 160000, 170000, 180000]) {
  for (const cmd of commands) {
    const out = []
    try {
      await describe(cmd, process.env.PGDATABASE, run, (item) => out.push(describeDataToString(item)), false, version).promise
    } catch (e) {
      out.push(`ERROR: ${e.message}`)
    }
    const text = out.join('\n')
    if (version > 150000 && process.env.STREAMDB_CONTROL) continue // PostgreSQL 15 itself has no columns of later versions
    same(`${cmd} as of ${version}: ${text}`, /ERROR/.test(text), false)
    if (['\\d', '\\dm+', '\\dp'].includes(cmd)) same(`${cmd} names the view: ${text}`, /\bmv\b/.test(text), true)
  }
}
await c.query('DROP SCHEMA c_describe CASCADE')
await c.end()
