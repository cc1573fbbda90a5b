-- GROUPING SETS, ROLLUP, CUBE.
--! views
--! setup
create table emp (id int primary key, name text, dept text, salary numeric(10,2), hired date, boss int, bonus float8);
insert into emp values (1, 'Ann', 'eng', 5000, '2020-01-15', null, 1.5), (2, 'Bob', 'eng', 4000, '2021-03-01', 1, null), (3, 'Cyd', 'eng', 4000, '2021-03-01', 1, 2.25), (4, 'Dan', 'ops', 3000, '2019-07-20', 1, 0), (5, 'Eve', 'ops', 3500.5, null, 4, -1), (6, 'Fay', 'hr', null, '2022-11-11', null, null), (7, null, null, 100, '2020-02-29', 6, 3);
create table dept (code text primary key, title text, floor int);
insert into dept values ('eng', 'Engineering', 3), ('ops', 'Operations', 1), ('law', 'Legal', null);
create table nums (i int primary key, s int2, b bigint, f float8, r float4, n numeric, t text, v varchar(10), c char(4), ok bool, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, a int[], by bytea);
insert into nums values (1, 1, 10, 1.5, 0.5, 1.10, 'a', 'va', 'c', true, '2024-01-01', '2024-01-01 10:00', '2024-01-01 10:00+00', '1 day', '00000000-0000-0000-0000-000000000001', '{"k":1}', '{1,2}', '\x01'), (2, 2, 20, -2.5, 1.25, 2.20, 'b', 'vb', 'd', false, '2024-02-29', '2024-02-29 23:59:59.5', '2024-02-29 10:00+02', '2 hours', '00000000-0000-0000-0000-000000000002', '[1]', '{3}', '\x0203'), (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null), (4, 1, 30, 'NaN', 'inf', 'NaN', 'a', 'va', 'c', true, 'infinity', 'infinity', '-infinity', '-1 mon', '00000000-0000-0000-0000-000000000001', 'null', '{}', '');
--! queries
--! list g = rollup(dept) | rollup(dept, boss) | cube(dept, boss) | grouping sets ((dept), (boss), ()) | grouping sets ((dept, boss), dept) | dept, rollup(boss) | rollup((dept, boss)) | grouping sets (rollup(dept), cube(boss)) | grouping sets ((), ()) | cube(dept), cube(boss) | grouping sets (dept, boss) | rollup(dept, boss, hired)
--! list a = count(*) | sum(salary) | max(name) | array_agg(id order by id) | count(distinct salary) | grouping(dept) 
select count(*), sum(id) from emp group by {g};
select {a} from emp group by dept, {g};
select {a} from emp group by boss, dept, {g};
select dept, boss, count(*) from emp group by cube(dept, boss);
select dept, boss, grouping(dept, boss), grouping(dept), count(*) from emp group by rollup(dept, boss) order by 3, 1, 2;
select dept, count(*) from emp group by rollup(dept) having grouping(dept) = 0 order by 1;
select coalesce(dept, 'all'), sum(salary) from emp group by rollup(dept) order by grouping(dept), 1;
select grouping(dept) from emp;
select grouping(name) from emp group by dept;
select grouping() from emp group by dept;
select upper(dept), count(*) from emp group by rollup(upper(dept)) order by 1;
select count(*) from emp where false group by rollup(dept);
select count(*) from emp where false group by grouping sets ((), (dept));
select dept, sum(count(*)) over (order by dept) from emp group by rollup(dept) order by 1;
select dept, count(*) from emp group by grouping sets (1, ()) order by 1;
select dept, boss, count(*) from emp group by distinct rollup(dept, boss), rollup(dept) order by 1, 2, 3;
select dept, count(*) from emp group by all rollup(dept), rollup(dept) order by 1, 2;
select dept from emp group by rollup(boss);
select 1 from emp group by rollup(1, 2);
select dept, case grouping(dept) when 1 then 'total' else dept end from emp group by rollup(dept) order by 1;
select d.title, count(e.id), grouping(d.title) from dept d left join emp e on e.dept = d.code group by rollup(d.title) order by 3, 1;
