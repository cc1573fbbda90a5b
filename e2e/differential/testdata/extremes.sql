-- The ends of the ranges of types, and texts that only just are values.
--! exact
--! setup
create table ext (k text, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric, d date, ts timestamp, tz timestamptz, ti time, ttz timetz, iv interval, by bytea, t text);
insert into ext values ('min', -32768, -2147483648, -9223372036854775808, '-3.4028235e38', '-1.7976931348623157e308', '-1e1000', '4713-01-01 BC', '4713-01-01 BC', '4713-01-01 BC', '00:00', '00:00+15:59', '-178000000 years', '', ''), ('max', 32767, 2147483647, 9223372036854775807, '3.4028235e38', '1.7976931348623157e308', '1e1000', '5874897-12-31', '294276-12-31 23:59:59.999999', '294276-12-31 23:59:59.999999', '24:00', '24:00-15:59', '178000000 years', '\xff', U&'\+10FFFF'), ('inf', 0, 0, 0, 'inf', 'inf', 'inf', 'infinity', 'infinity', 'infinity', '12:00', '12:00+00', '0', '\x00', 'x'), ('-inf', 1, 1, 1, '-inf', '-inf', '-inf', '-infinity', '-infinity', '-infinity', '12:00', '12:00+00', '1 mon', '\x0000', 'xx'), ('nan', 1, 1, 1, 'nan', 'nan', 'nan', '2000-01-01', '2000-01-01', '2000-01-01', '23:59:59.999999', '23:59:59.999999-00:00:01', '30 days', '\x01', 'é'), ('tiny', 1, 1, 1, '1e-45', '5e-324', '1e-1000', '0001-01-01', '0001-01-01', '0001-01-01', '00:00:00.000001', '00:00:00.000001+00:30:15', '1 microsecond', '\x7f', 'é'), ('null', null, null, null, null, null, null, null, null, null, null, null, null, null, null);
--! queries
--! list c = i2 | i4 | i8 | f4 | f8 | n | d | ts | tz | ti | ttz | iv | by | t
select k, {c} from ext order by k;
select k from ext order by {c}, k;
select min({c}::text) from ext;
select max({c}) from ext;
select min({c}) from ext;
select count(distinct {c}) from ext;
select array_agg({c} order by k) from ext;
select json_agg({c} order by k) from ext;
select jsonb_agg({c} order by k) from ext;
select sum({c}) from ext;
select avg({c}) from ext where k in ('tiny', 'null');
select a.k, b.k, a.{c} < b.{c}, a.{c} = b.{c} from ext a, ext b order by a.k, b.k;
select k, -({c}) from ext order by k;
select k, {c} + {c} from ext order by k;
select k, {c} - {c} from ext order by k;
select k, {c} * 2 from ext where k in ('inf', 'tiny') order by k;
select k, {c} / 2 from ext where k in ('min', 'inf') order by k;
select k, abs({c}) from ext where k <> 'min' order by k;
select k, {c}::text::varchar(12) from ext order by k;
--! list ty = int2 | int4 | int8 | float4 | float8 | numeric | numeric(5,2) | text | varchar(3) | char(5) | bool | bytea | date | timestamp | timestamp(0) | timestamptz | time | time(0) | timetz | interval | uuid | json | jsonb | oid | name | "char" | int4[] | text[]
--! list src = 1::int2 | 300::int4 | -1::int8 | 1.5::float4 | 2.5::float8 | 1234.567::numeric | '1'::text | 'true'::varchar | 'ab'::char(4) | true | '\x31'::bytea | date '2024-02-29' | timestamp '2024-02-29 23:59:59.999999' | timestamptz '2024-02-29 23:59:59.5+00' | time '23:59:59.9999' | timetz '01:02:03+04:05' | interval '1 day 02:03:04.567' | '00112233-4455-6677-8899-aabbccddeeff'::uuid | '1'::json | '1.5'::jsonb | 5::oid | 'nm'::name | 'x'::"char" | array[1,2] | array['3','4'] | null
select cast({src} as {ty});
--! list lit = '' | ' ' | '0' | ' 12 ' | '-0' | '+5' | '1_000' | '0x1F' | '1e3' | '1.' | '.5' | '1e' | 'inf' | '-Infinity' | 'NaN' | 'nan' | '99999' | '-32768' | '32768' | '2147483648' | '9223372036854775808' | '1e400' | '1e-400' | '1e39' | '1e-50' | '1e131072' | '1e-16384' | 't' | 'tr' | 'on' | 'of' | 'o' | 'yes' | '1' | 'infinity' | 'epoch' | 'allballs' | '24:00' | '24:00:01' | '23:59:60' | '23:59:61' | '10:60' | '10' | '1000' | '10:00 PM' | '13:00 PM' | '2024-02-30' | '2023-02-29' | '2024-1-1' | '20240101' | '2024.060' | '1 Jan 99' | 'Jan 1 1999 BC' | '0001-01-01 BC' | '0000-01-01' | '4714-11-24 BC' | '4714-11-23 BC' | '5874897-12-31' | '5874898-01-01' | '294276-12-31 23:59:59.999999' | '294277-01-01' | '2024-01-01 10:00:00.1234567' | '2024-01-01 24:00' | '2024-01-01T10:00Z' | '2024-01-01 10:00+15:59:59' | '2024-01-01 10:00+16' | '2024-01-01 10:00 America/New_York' | '2024-01-01 10:00 EST' | '2024-01-01 10:00 XYZ' | '2024-03-10 02:30 America/New_York' | '10:00+01:02:03' | '1 day' | '1 mon -1 day' | '1-2' | '1-2 3 4:05:06' | 'P1Y2M3DT4H5M6.7S' | 'P-1Y' | 'PT' | 'P' | '1 year 2 mons ago' | '@ 1 day' | '1.5 months' | '1.5 years' | '0.1 day' | '178000000 years' | '178956971 years' | '1 fortnight' | '1 week 1 century' | '1 day 1 day' | '00:00:00.0000001' | '-00:00:01' | '1:2' | '100:00:00' | '{}' | '{1}' | '{1,2' | '{{1},{2}}' | '{{1},{2,3}}' | '[0:1]={1,2}' | '[1:2]={1}' | '[2:1]={}' | '{ 1 , 2 }' | '{"a","b\"c"}' | '{NULL,null,"NULL"}' | '{a b, c}' | '{,}' | '{1}x' | '{""}' | '[-2147483648:-2147483647]={1,2}' | '[1:1][2:2]={{7}}' | '\x' | '\x0' | '\xZZ' | '\x 00 ff' | '\000' | '\8' | 'a\\b' | '"a"' | '"\ud83d\ude00"' | '"\ud83d"' | '"\u0000"' | '{"a":1,"a":2}' | '[1,]' | '{"a"}' | '01' | '1.0e5' | '-' | '[[[[]]]]' | 'nul' | 'null' | '"\x"' | '{"a":"b"' | '1 2' | 'é' | '😀' | '00112233445566778899aabbccddeeff' | '{00112233-4455-6677-8899-aabbccddeeff}' | '0011-2233-4455-6677-8899-aabb-ccdd-eeff' | '00112233-4455-6677-8899-aabbccddeef'
--! list to = int2 | int4 | int8 | float4 | float8 | numeric | bool | date | timestamp | timestamptz | time | timetz | interval | int4[] | text[] | bytea | json | jsonb | uuid | oid | "char" | name | varchar(3)
select {lit}::{to};
--! list style = postgres | postgres_verbose | sql_standard | iso_8601
--! list iv = '0' | '1 year' | '-1 year' | '1 mon' | '1 day' | '-1 day' | '1 second' | '-0.5 seconds' | '1 year -1 mon' | '1 year 2 mons 3 days 04:05:06.789' | '-1 year -2 mons -3 days -04:05:06.789' | '1 mon -1 day' | '1 day -00:00:01' | '-1 day 00:00:01' | '100 hours' | '00:00:00.000001' | '178000000 years' | '1 year 1 day' | '1 mon 00:00:01'
set intervalstyle = '{style}';
select interval {iv}, array[interval {iv}], to_json(interval {iv}), (interval {iv})::text;
set intervalstyle = 'sql_standard';
select interval '1-2', interval '-1-2', interval '1 2:03', interval '-1-2 +3 -4:05:06';
set intervalstyle = 'postgres';
--! list ds = ISO, MDY | ISO, DMY | SQL, MDY | SQL, DMY | Postgres, MDY | Postgres, DMY | German | nosuch | SQL, DMY, YMD
set datestyle = '{ds}';
select date '2024-02-01', timestamp '2024-02-01 10:11:12.5', timestamptz '2024-02-01 10:11:12.5+00', date '0044-03-15 BC', timestamp '0044-03-15 01:02:03 BC', date 'infinity', timestamp '12345-01-01';
select '01/02/2024'::date, '01-02-03'::date, array[date '2024-02-01'], to_json(date '2024-02-01'), (timestamp '2024-02-01')::text;
reset datestyle;
--! list zone = UTC | America/New_York | Asia/Kolkata | +3 | -03:30 | 5.5 | EST5EDT | <+03>-3 | Europe/London | nosuch | +99 | Africa/Monrovia | interval '-08:00' hour to minute
set timezone = '{zone}';
select timestamptz '2024-07-01 12:00Z', timestamptz '1900-01-01 00:00Z', timestamptz '0044-03-15 BC', timestamptz '2024-03-10 07:00Z', '2024-03-31 01:30'::timestamptz, timetz '10:00', extract(timezone from timestamptz '1900-01-01 00:00Z');
show timezone;
select to_json(timestamptz '1900-01-01 00:00Z'), timestamptz '1900-01-01 00:00Z' at time zone 'Africa/Monrovia', '2024-11-03 01:30 America/New_York'::timestamptz;
set timezone = 'UTC';
--! list bo = hex | escape
set bytea_output = '{bo}';
select '\x00017f80ff5c27'::bytea, ''::bytea, 'abc'::bytea, array['\x5c22'::bytea], ('\x0041'::bytea)::text, to_json('\x41'::bytea);
set bytea_output = 'hex';
--! list efd = 1 | 0 | -15 | 3 | -1
set extra_float_digits = {efd};
select 0.1::float8, 1/3::float8, 1e15::float8, 1e16::float8, 123456789012345678::float8, 1e-5::float8, 0.00001234::float8, 0.1::float4, 16777217::float4, 1e6::float4, 3.4e38::float4, array[0.1::float8], to_json(0.1::float8), (0.1::float8)::text, 5e-324::float8, '-0'::float8;
set extra_float_digits = 1;
--! list nu = 1e1000 | 1e-1000 | 1e131071 | 0.5e-16382 | -1e500 | 12345678901234567890123456789012345678901234567890.12345678901234567890123456789
select length(({nu}::numeric)::text), {nu}::numeric > 1, {nu}::numeric * 0, round({nu}::numeric, 2) = {nu}::numeric;
select length(({nu}::numeric + 1)::text), length(({nu}::numeric * {nu}::numeric)::text) from (values (1)) v;
select length((1 / {nu}::numeric)::text);
select {nu}::numeric::float8;
select {nu}::numeric::int8;
--! list np = numeric(1000,0) | numeric(1001,0) | numeric(0) | numeric(5,-2) | numeric(5,6) | numeric(3,1000) | numeric(3,1001) | numeric(3,-1000) | numeric(3,-1001) | numeric(-1) | numeric(2,2) | numeric(5,2,1) | varchar(0) | varchar(10485761) | char(0) | float(24) | float(25) | text(5) | int(5) | date(3)
select 12345::{np};
select 0.05::{np};
select null::{np};
--! list tx = '' | E'a\tb' | 'a''b' | E'\\' | 'ÀÉ' | 'straße' | 'ǆ' | '😀👍🏽' | 'é' | 'ＡＢＣ' | E'\u200b' | E'a\u0301' | U&'\+01F600' | U&'d\0061t' | 'İi' | 'ﬁ'
select length({tx}), octet_length({tx}), char_length({tx}), upper({tx}), lower({tx}), initcap({tx}), reverse({tx}), left({tx}, 1), right({tx}, 1), substr({tx}, 2), lpad({tx}, 5, '*'), ascii({tx}), md5({tx}), quote_literal({tx}), quote_ident({tx}), to_json({tx}::text), {tx}::bytea, strpos({tx}, 'b'), {tx} like '_', {tx} ~ '^.$', {tx} = {tx} collate "C", split_part({tx}, 'a', 1), {tx}::char(2), {tx}::varchar(1), {tx}::name;
select '[1:3]={1,2,3}'::int[] || 4, array_lower('[5:6]={1,2}'::int[], 1), ('[5:6]={1,2}'::int[])[5], '{}'::int[] || '{}'::int[], array_length('{}'::int[], 1), '{}'::int[] = '{}', array_dims('[2:3][0:1]={{1,2},{3,4}}'::int[]), cardinality('{{1,2},{3,4}}'::int[]), ('{{1,2},{3,4}}'::int[])[1:1][2], array[]::text[], '{}'::text[] < '{a}', array_cat('[0:0]={1}'::int[], '{2}'), array_remove('[2:4]={1,2,1}'::int[], 1), array_append('[2:2]={1}'::int[], 2), array_prepend(0, '[2:2]={1}'::int[]);
select array['a"b', 'c\d', '{e}', 'f,g', ' h ', '', null, 'NULL', E'\t']::text[], array[array['x"','y'],array['z\','']], array[row(1,'a,b"c')]::text;
