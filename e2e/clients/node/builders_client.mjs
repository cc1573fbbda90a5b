// Query builders and object mappers: Knex, Kysely, Sequelize, TypeORM. Each makes tables, writes, reads and reflects.
import 'reflect-metadata'
import knexModule from 'knex'
import { Kysely, PostgresDialect, sql } from 'kysely'
import pg from 'pg'
import { DataTypes, Sequelize } from 'sequelize'
import { DataSource, EntitySchema } from 'typeorm'
import { same } from './checks.mjs'

const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database } = process.env
const root = new pg.Client()
await root.connect()
const fresh = (s) => root.query(`DROP SCHEMA IF EXISTS ${s} CASCADE; CREATE SCHEMA ${s}`)

await fresh('c_knex')
const knex = knexModule({ client: 'pg', connection: { host, port: +port, user, database }, searchPath: ['c_knex'] })
await knex.schema.createTable('users', (t) => {
  t.increments('id')
  t.string('name').notNullable().unique()
  t.decimal('balance', 10, 2).defaultTo(0)
  t.timestamps(true, true)
  t.index(['balance'])
})
same('knex insert', await knex('users').insert([{ name: 'a', balance: 1 }, { name: 'b', balance: 2 }]).returning('id'), [{ id: 1 }, { id: 2 }])
await knex('users').insert({ name: 'a', balance: 5 }).onConflict('name').merge(['balance'])
same('knex', await knex('users').select('name', 'balance').orderBy('name'), [{ name: 'a', balance: '5.00' }, { name: 'b', balance: '2.00' }])
same('knex hasTable', [await knex.schema.hasTable('users'), await knex.schema.hasTable('nope'), await knex.schema.hasColumn('users', 'name')], [true, false, true])
same('knex columnInfo', (await knex('users').columnInfo()).name, { type: 'character varying', maxLength: 255, nullable: false, defaultValue: null })
await knex.schema.alterTable('users', (t) => { t.integer('age').defaultTo(7) })
same('knex alter', await knex('users').where({ name: 'b' }).first('age'), { age: 7 })
await knex.transaction(async (trx) => { await trx('users').where({ name: 'b' }).delete() })
same('knex delete', +(await knex('users').count('* as n').first()).n, 1)
await knex.destroy()

await fresh('c_kysely')
const kysely = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ options: '-c search_path=c_kysely' }) }) })
await kysely.schema.createTable('pet').addColumn('id', 'serial', (c) => c.primaryKey()).addColumn('name', 'varchar(30)', (c) => c.notNull()).addColumn('kind', 'text', (c) => c.defaultTo('cat')).execute()
await kysely.schema.createIndex('pet_kind').on('pet').column('kind').execute()
await sql`CREATE MATERIALIZED VIEW kinds AS SELECT kind, count(*) AS n FROM pet GROUP BY kind`.execute(kysely)
same('kysely insert', await kysely.insertInto('pet').values([{ name: 'x' }, { name: 'y', kind: 'dog' }]).returning(['id', 'kind']).execute(), [{ id: 1, kind: 'cat' }, { id: 2, kind: 'dog' }])
same('kysely select', await kysely.selectFrom('pet').where('kind', 'in', ['dog', 'cow']).select('name').execute(), [{ name: 'y' }])
const tables = (await kysely.introspection.getTables()).filter((t) => t.schema === 'c_kysely')
same('kysely tables', tables.map((t) => [t.name, t.isView, t.columns.map((c) => [c.name, c.dataType, c.isNullable, c.isAutoIncrementing, c.hasDefaultValue])]).filter((t) => !t[1]), [
  ['pet', false, [['id', 'int4', false, true, true], ['name', 'varchar', false, false, false], ['kind', 'text', true, false, true]]],
])
await kysely.destroy()

await fresh('c_sequelize')
const seq = new Sequelize({ dialect: 'postgres', host, port, username: user, database, logging: false, schema: 'c_sequelize', define: { timestamps: true } })
const Book = seq.define('Book', {
  title: { type: DataTypes.STRING(50), allowNull: false, unique: true },
  pages: { type: DataTypes.INTEGER, defaultValue: 1 },
  tags: DataTypes.ARRAY(DataTypes.STRING),
  meta: DataTypes.JSONB,
  state: DataTypes.STRING,
})
await seq.sync()
await Book.bulkCreate([{ title: 'a', pages: 10, tags: ['x'], meta: { k: 1 }, state: 'new' }, { title: 'b', state: 'used' }])
same('sequelize find', (await Book.findOne({ where: { meta: { k: 1 } } })).title, 'a')
await Book.upsert({ title: 'a', pages: 11 })
same('sequelize upsert', await Book.sum('pages'), 12)
await Book.update({ pages: 3 }, { where: { title: 'b' } })
same('sequelize count', await Book.count({ where: { pages: 3 } }), 1)
const q = seq.getQueryInterface()
same('sequelize tables', (await q.showAllTables({ schema: 'c_sequelize' })).map((t) => t.tableName ?? t), ['Books'])
const described = await q.describeTable({ tableName: 'Books', schema: 'c_sequelize' })
same('sequelize describe', Object.entries(described).map(([k, v]) => [k, v.type, v.primaryKey]).sort(), [
  ['createdAt', 'TIMESTAMP WITH TIME ZONE', false], ['id', 'INTEGER', true], ['meta', 'JSONB', false], ['pages', 'INTEGER', false],
  ['state', 'CHARACTER VARYING(255)', false], ['tags', 'ARRAY', false], ['title', 'CHARACTER VARYING(50)', false], ['updatedAt', 'TIMESTAMP WITH TIME ZONE', false],
])
same('sequelize indexes', (await q.showIndex({ tableName: 'Books', schema: 'c_sequelize' })).map((i) => [i.name, i.primary, i.unique]).sort(), [
  ['Books_pkey', true, true], ['Books_title_key', false, true],
])
await seq.sync({ alter: true })
await seq.close()

await fresh('c_typeorm')
const User = new EntitySchema({
  name: 'user', tableName: 'user', schema: 'c_typeorm',
  columns: {
    id: { type: 'int', primary: true, generated: true },
    name: { type: 'varchar', length: 40, unique: true },
    balance: { type: 'numeric', precision: 10, scale: 2, default: 0 },
    created: { type: 'timestamptz', createDate: true },
  },
  indices: [{ columns: ['balance'] }],
})
const orm = new DataSource({ type: 'postgres', host, port: +port, username: user, database, schema: 'c_typeorm', entities: [User], synchronize: true })
await orm.initialize()
const repo = orm.getRepository(User)
await repo.save([{ name: 'a', balance: '1.50' }, { name: 'b' }])
same('typeorm', (await repo.find({ order: { name: 'ASC' } })).map((u) => [u.id, u.name, u.balance]), [[1, 'a', '1.50'], [2, 'b', '0.00']])
await orm.synchronize() // compares with what is there, and finds nothing to change
same('typeorm diff', (await orm.driver.createSchemaBuilder().log()).upQueries.map((x) => x.query), [])
await orm.transaction(async (m) => { await m.delete(User, { name: 'b' }) })
same('typeorm count', await repo.count(), 1)
await orm.destroy()

for (const s of ['c_knex', 'c_kysely', 'c_sequelize', 'c_typeorm']) await root.query(`DROP SCHEMA ${s} CASCADE`)
await root.end()
