-- UNION, INTERSECT, EXCEPT.
--! views
--! setup
create table emp (id int primary key, name text, dept text, salary numeric(10,2), hired date, boss int, bonus float8);
insert into emp values (1, 'Ann', 'eng', 5000, '2020-01-15', null, 1.5), (2, 'Bob', 'eng', 4000, '2021-03-01', 1, null), (3, 'Cyd', 'eng', 4000, '2021-03-01', 1, 2.25), (4, 'Dan', 'ops', 3000, '2019-07-20', 1, 0), (5, 'Eve', 'ops', 3500.5, null, 4, -1), (6, 'Fay', 'hr', null, '2022-11-11', null, null), (7, null, null, 100, '2020-02-29', 6, 3);
create table dept (code text primary key, title text, floor int);
insert into dept values ('eng', 'Engineering', 3), ('ops', 'Operations', 1), ('law', 'Legal', null);
create table nums (i int primary key, s int2, b bigint, f float8, r float4, n numeric, t text, v varchar(10), c char(4), ok bool, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, a int[], by bytea);
insert into nums values (1, 1, 10, 1.5, 0.5, 1.10, 'a', 'va', 'c', true, '2024-01-01', '2024-01-01 10:00', '2024-01-01 10:00+00', '1 day', '00000000-0000-0000-0000-000000000001', '{"k":1}', '{1,2}', '\x01'), (2, 2, 20, -2.5, 1.25, 2.20, 'b', 'vb', 'd', false, '2024-02-29', '2024-02-29 23:59:59.5', '2024-02-29 10:00+02', '2 hours', '00000000-0000-0000-0000-000000000002', '[1]', '{3}', '\x0203'), (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null), (4, 1, 30, 'NaN', 'inf', 'NaN', 'a', 'va', 'c', true, 'infinity', 'infinity', '-infinity', '-1 mon', '00000000-0000-0000-0000-000000000001', 'null', '{}', '');
--! queries
--! list so = union | union all | intersect | intersect all | except | except all
--! list q1 = select dept from emp | select 'eng' | values ('ops'), ('eng'), ('eng') | select null::text | select code from dept | select name from emp where id > 2
--! list q2 = select code from dept | select null | values ('eng'), (null) | select dept from emp where id < 3
{q1} {so} {q2};
({q1}) {so} ({q2}) order by 1;
select count(*) from ({q1} {so} {q2}) x;
{q1} {so} {q2} order by 1 desc nulls last limit 2;
with a as ({q1}) select * from a {so} {q2};
{q1} {so} {q2} {so} {q1};
select 1 union select 2.5 order by 1;
select 1 union select '2' order by 1;
select 1 union select 'x';
select 1 union select 'x'::text;
select '1' union select 2 order by 1;
select null union select 1 order by 1;
select null union select null;
select 'a' union all select null union all select 'b';
select 1 union select 2, 3;
select 1 as a union select 2 as b order by a;
select 1 as a union select 2 as b order by b;
select 1 union select 2 order by 2;
select 1 union all select 2 order by 1 + 1;
select 1 a union select 2 order by a desc limit 1;
(select 1 union select 2) except select 1;
select 1 union (select 2 except select 2);
select 1 union select 2 intersect select 2 order by 1;
select 1 except select 1 union select 3;
(select id from emp order by id limit 2) union all (select id from emp order by id desc limit 1) order by 1;
select id from emp limit 1 union select 2;
select id from emp order by id union select 1;
select date '2024-01-01' union select timestamp '2024-01-02' order by 1;
select 1::int2 union select 2::bigint order by 1;
select 1::float4 union select 2::numeric order by 1;
select 'a'::varchar(3) union select 'bcde'::text order by 1;
select 'a'::char(3) union select 'a'::varchar(3);
select array[1] union select array[2] order by 1;
select '{}'::json union select '{}'::json;
select '{}'::json union all select '{}'::json;
select 1 intersect select 1.0;
select distinct dept from emp union all select 'x' order by 1;
select count(*) from (select 1 union all select 1 union select 1) x;
select 1 union all select 1 intersect all select 1;
select a, b from (values (1, 'x'), (2, 'y')) v(a, b) union values (3, 'z') order by 1;
values (1), (2) union all values (3) order by 1;
table dept union all table dept order by 1;
select * from dept except select * from dept where floor = 3 order by 1;
select true union select 1;
select interval '1 day' union select '24 hours';
select 1 union select 2 union select 3.5 order by 1;
select 1 union select null union select '5' order by 1;
select null union select null union select 1;
select 1 where false union all select 2;
select pg_typeof(x) from (select 1 union select 2.5) t(x) limit 1;
select 1, 'a' union select 2, null order by 1;
select 'x' as y union select 'z' group by 1 order by y;
select sum(x) from (select 1 as x union all select 2) t;
select 1 union select 1 for update;
select 1 into foo union select 2;
