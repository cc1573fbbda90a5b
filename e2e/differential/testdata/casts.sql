-- Every value to every type, explicit and by assignment, and the I/O of types.
--! views
--! list v = true | 1::int2 | 42 | -1::bigint | 1.5 | 2.5::float4 | -3.5::float8 | 'abc' | '12' | 'x'::text | '7'::varchar | 'ab'::char(4) | 'nm'::name | 'c'::"char" | '\x6162'::bytea | date '2024-02-29' | time '13:14:15' | timetz '13:14:15+02' | timestamp '2024-02-29 13:14:15.5' | timestamptz '2024-02-29 13:14:15+00' | interval '1 day 02:03:04' | '00000000-0000-0000-0000-00000000000a'::uuid | '{"a":1}'::json | '[1]'::jsonb | '5'::jsonb | array[1,2] | array['a','b'] | 5::oid | row(1,'a') | null
--! list t = bool | int2 | int4 | int8 | numeric | numeric(3,1) | float4 | float8 | text | varchar | varchar(2) | char(3) | name | "char" | bytea | date | time | time(0) | timetz | timestamp | timestamp(0) | timestamptz | interval | uuid | json | jsonb | int[] | text[] | oid
--! queries
select cast({v} as {t});
--! list bt = 't' | 'true' | 'T' | 'yes' | 'on' | '1' | ' f ' | 'no' | 'off' | '0' | 'tr' | 'o' | '' | 'x' | '2' | 'falsey'
select {bt}::bool;
--! list ut = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11' | 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11' | '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}' | 'a0eebc999c0b4ef8bb6d6bb9bd380a11' | 'a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11' | 'a0eebc99' | '' | 'g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
select {ut}::uuid;
--! list by = '\x0102' | '\xAB cd' | 'abc' | 'a\\b' | '\\001' | '\x0' | '\xzz' | '' | '\\9'
select {by}::bytea;
select E'\\x41'::bytea, 'é'::bytea;
--! list it = '1' | ' 1 ' | '+1' | '-1' | '' | ' ' | '1.0' | '1e1' | 'a' | '1a' | '99999999999999999999' | '-129' | '2147483648' | '32768' | '0b1' | '0o7' | '１'
select {it}::int2;
select {it}::int4;
select {it}::int8;
select {it}::numeric;
select {it}::float8;
select {it}::float4;
select {it}::oid;
select 'abc'::text::int;
select null::int, null::text, null::nosuch;
select cast(null as int);
select int '5', float8 '1.5', bool 'yes', numeric '1.50', interval '1 day', uuid 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', bytea '\x01', name 'abc', "char" 'x';
select int 'x';
select double precision '1', character varying 'abc', character varying(2) 'abc', character(2) 'abc', timestamp with time zone '2024-01-01', time without time zone '10:00', bit varying '1';
select 1::int::text::varchar(10)::char(3)::name;
select 1::integer, 1::smallint, 1::bigint, 1::decimal, 1::dec(5,1), 1::real, 1::double precision, 1::float(10), 1::float(30), true::boolean, '1'::national character(2), '1'::nchar, 1::pg_catalog.int4, '1'::pg_catalog.varchar, 1::"int4";
select 1::"integer";
select 1::float(60);
select 1::float(0);
select '2024-01-01'::date::text::date, 1.5::text::numeric, true::text::bool, 'abc'::text::name::varchar;
select 123456::varchar(3);
select 123456::char(3);
select 'abcdef'::varchar(3)::varchar(10);
select 'a'::char(5)::varchar || '|', 'a'::char(5)::text || '|', ('a'::char(5))::char(2) || '|';
select 99.99::numeric(3,1);
select 999.9::numeric(3,1);
select '1.5'::int;
select 1.5::int::text;
select 1e10::int;
select 'NaN'::float8::numeric::text;
select pg_typeof(1::int2), pg_typeof('a'::"char"), pg_typeof(null), pg_typeof('a'), pg_typeof(array[1]), pg_typeof(row(1)), pg_typeof('{}'::json), pg_typeof(1::numeric(3,1)), pg_typeof('a'::varchar(3)), pg_typeof('a'::char(3)), pg_typeof('a'::name), pg_typeof(interval '1 day'), pg_typeof('x'::bytea), pg_typeof(1::oid), pg_typeof('int4'::regtype), pg_typeof('pg_class'::regclass);
select 'int4'::regtype, 'integer'::regtype::oid, 23::regtype, 'text[]'::regtype, 'varchar(3)'::regtype, 'nosuch'::regtype;
select 'pg_class'::regclass, 'pg_class'::regclass::oid, 1259::regclass, 'pg_catalog.pg_class'::regclass;
select 'nosuch'::regclass;
select 'now'::regproc, 'abs(int4)'::regprocedure;
select 'abs'::regproc;
select 'pg_catalog'::regnamespace;
select '1,5'::numeric;
select '1_000'::numeric;
select '0x1f'::numeric;
select cast('1' as int), cast(1 as text), cast('2024-01-01' as date), cast(1 as bool), cast('a' as varchar), cast(array['1'] as int[]), cast('{1,2}' as int[]), cast('{1,2}' as text);
select treat(1 as int);
select '5'::int4::bool::int;
select true::text, true::varchar, true::char(5), false::char;
select true::varchar(2);
select true::int2;
select true::numeric;
select 1::int2::bool;
select 'true'::varchar::bool, 'f'::char(2)::bool;
select ' 2024-01-01 '::date, ' 10:00 '::time, ' 1 day '::interval;
select '1'::int = '1', '1' = 1, 1 = '1'::text;
select 1::text = '1', 1::varchar = '1';
select date '2024-01-01' = '2024-01-01'::text;
