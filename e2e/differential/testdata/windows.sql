-- Window functions and frames.
--! views
--! setup
create table emp (id int primary key, name text, dept text, salary numeric(10,2), hired date, boss int, bonus float8);
insert into emp values (1, 'Ann', 'eng', 5000, '2020-01-15', null, 1.5), (2, 'Bob', 'eng', 4000, '2021-03-01', 1, null), (3, 'Cyd', 'eng', 4000, '2021-03-01', 1, 2.25), (4, 'Dan', 'ops', 3000, '2019-07-20', 1, 0), (5, 'Eve', 'ops', 3500.5, null, 4, -1), (6, 'Fay', 'hr', null, '2022-11-11', null, null), (7, null, null, 100, '2020-02-29', 6, 3);
create table dept (code text primary key, title text, floor int);
insert into dept values ('eng', 'Engineering', 3), ('ops', 'Operations', 1), ('law', 'Legal', null);
create table nums (i int primary key, s int2, b bigint, f float8, r float4, n numeric, t text, v varchar(10), c char(4), ok bool, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, a int[], by bytea);
insert into nums values (1, 1, 10, 1.5, 0.5, 1.10, 'a', 'va', 'c', true, '2024-01-01', '2024-01-01 10:00', '2024-01-01 10:00+00', '1 day', '00000000-0000-0000-0000-000000000001', '{"k":1}', '{1,2}', '\x01'), (2, 2, 20, -2.5, 1.25, 2.20, 'b', 'vb', 'd', false, '2024-02-29', '2024-02-29 23:59:59.5', '2024-02-29 10:00+02', '2 hours', '00000000-0000-0000-0000-000000000002', '[1]', '{3}', '\x0203'), (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null), (4, 1, 30, 'NaN', 'inf', 'NaN', 'a', 'va', 'c', true, 'infinity', 'infinity', '-infinity', '-1 mon', '00000000-0000-0000-0000-000000000001', 'null', '{}', '');
--! queries
--! list w = row_number() | rank() | dense_rank() | percent_rank() | cume_dist() | ntile(2) | ntile(3) | lag(id) | lead(id) | lag(salary, 2) | lead(name, 1, 'none') | lag(id, 0) | lag(id, -1) | lead(id, 2, -1) | first_value(name) | last_value(name) | nth_value(id, 2) | count(*) | sum(salary) | avg(salary) | min(id) | max(salary) | string_agg(name, ',') | array_agg(id) | count(salary) | bool_or(id > 3) | sum(id)
--! list over = () | (order by id) | (partition by dept order by id) | (order by salary, id) | (partition by dept order by salary desc nulls last, id) | (order by hired nulls first, id)
select id, {w} over {over} from emp order by id;
--! list frame = rows between unbounded preceding and current row | rows between 1 preceding and 1 following | rows between current row and unbounded following | rows between 2 preceding and 1 preceding | rows between 1 following and 2 following | range between unbounded preceding and current row | range between current row and unbounded following | groups between 1 preceding and 1 following | groups between current row and 1 following | rows unbounded preceding | range current row | groups 1 preceding | rows between unbounded preceding and unbounded following | rows between 0 preceding and 0 following
--! list ex = | exclude current row | exclude group | exclude ties | exclude no others
select id, sum(id) over (order by salary {frame} {ex}), count(*) over (order by salary {frame} {ex}), array_agg(id) over (order by salary, id {frame} {ex}) from emp order by id;
select id, first_value(id) over (order by id {frame} {ex}), last_value(id) over (order by id {frame} {ex}), nth_value(id, 2) over (order by id {frame} {ex}) from emp order by id;
select id, sum(id) over (order by salary range between 500 preceding and 500 following) from emp order by id;
select id, sum(id) over (order by hired range between '1 year' preceding and '1 month' following) from emp order by id;
select id, count(*) over (order by bonus range between 1 preceding and 1 following) from emp order by id;
select id, count(*) over (order by id desc range between 1 preceding and 1 following) from emp order by id;
select id, count(*) over (order by id range between 1 following and 2 following) from emp order by id;
select sum(id) over (order by id rows between -1 preceding and current row) from emp;
select sum(id) over (rows between current row and 1 preceding) from emp;
select sum(id) over (order by id rows between unbounded following and current row) from emp;
select sum(id) over (order by id rows between null preceding and current row) from emp;
select sum(id) over (range between 1 preceding and current row) from emp;
select sum(id) over (order by name range between 1 preceding and current row) from emp;
select sum(id) over (groups between 1 preceding and current row) from emp;
select sum(id) over (order by id, name range 1 preceding) from emp;
select row_number() from emp;
select sum(id) over w from emp;
select id, sum(id) over w, count(*) over (w rows 1 preceding) from emp window w as (order by id) order by id;
select id, sum(id) over (w order by id) from emp window w as (partition by dept) order by id;
select sum(id) over (w partition by dept) from emp window w as (order by id);
select sum(id) over (w) from emp window w as (order by id rows 1 preceding);
select sum(id) over (w order by id) from emp window w as (order by name);
select 1 from emp window w as (order by id), w as (order by name);
select id from emp where row_number() over () = 1;
select id from emp group by row_number() over ();
select count(*) from emp having row_number() over () = 1;
select sum(row_number() over ()) from emp;
select row_number() over (order by row_number() over ()) from emp;
select ntile(0) over () from emp;
select ntile(null) over () from emp;
select nth_value(id, 0) over () from emp;
select nth_value(id, -1) over () from emp;
select lag() over () from emp;
select lag(id, 1, 'x') over (order by id) from emp;
select lag(id, 1, 2.5) over (order by id) from emp order by id;
select rank() over () from emp;
select rank(1) over () from emp;
select dept, sum(sum(salary)) over (order by dept) from emp group by dept order by dept;
select dept, rank() over (order by count(*) desc, dept) from emp group by dept order by 2;
select dept, sum(salary), sum(sum(salary)) over () from emp group by dept order by dept;
select * from (select id, row_number() over (partition by dept order by salary desc, id) rn from emp) x where rn = 1 order by id;
select distinct dept, count(*) over (partition by dept) from emp order by 1;
select id, lag(id) over (order by id) + 1, id - lead(id) over (order by id) from emp order by id;
select id, count(*) filter (where salary > 3500) over (order by id), sum(salary) filter (where dept = 'eng') over () from emp order by id;
select id, row_number() filter (where true) over () from emp;
select count(distinct id) over () from emp;
select id, sum(id) over (partition by dept, hired order by id), count(*) over (partition by (id > 3)) from emp order by id;
select id, rank() over (order by dept desc nulls last), dense_rank() over (order by dept nulls first) from emp order by id;
select id, percent_rank() over (partition by dept order by salary), cume_dist() over (partition by dept order by salary) from emp order by id;
select pg_typeof(row_number() over ()), pg_typeof(rank() over ()), pg_typeof(ntile(1) over ()), pg_typeof(percent_rank() over ()), pg_typeof(sum(id) over ()), pg_typeof(lag(name) over ()) from emp limit 1;
select last_value(name) over (order by id rows between unbounded preceding and unbounded following) from emp order by id;
select id, first_value(salary) over (partition by dept order by salary nulls first) from emp order by id;
select row_number() over (order by id) as rn, * from dept, (select 1 as id) x order by code;
select id, sum(id) over (order by id rows between 1 preceding and 1 following) * 2 from emp order by id;
select row_number() over (order by id) from emp order by row_number() over (order by id) desc;
select max(id) over (order by id) m from emp order by m desc limit 2;
select id from emp order by rank() over (order by salary), id;
select sum(distinct id) over () from emp;
select string_agg(name, ',' order by name) over () from emp;
select array_agg(id order by id) over () from emp;
select lower(name) over () from emp;
select nosuch(id) over () from emp;
select generate_series(1,2) over ();
select jsonb_agg(id) over (order by id) from emp order by id;
select stddev(salary) over (order by id), variance(id) over (order by id rows 2 preceding) from emp order by id;
select corr(id, salary) over (order by id) from emp order by id;
select id, avg(bonus) over (order by id rows 1 preceding) from emp order by id;
select lag(name, id) over (order by id) from emp order by id;
select lag(name, null) over (order by id) from emp order by id;
-- Offsets of RANGE by type.
--! list typed = i range between 1 preceding and 1 following | s range between 1 preceding and current row | b range 15 preceding | b desc range between 10 preceding and 10 following | f range between 2.5 preceding and 1 following | f range between 'infinity' preceding and current row | r range between 1 preceding and 1 following | r range between current row and 'infinity' following | n range between 1.05 preceding and 1.1 following | n desc nulls first range 2 preceding | d range between '60 days' preceding and current row | d range between '1 mon' preceding and '12 hours' following | d desc range between '2 mons' preceding and '1 day' following | ts range between '1 mon 20 days' preceding and current row | ts desc nulls last range between '90 days' preceding and '1 day' preceding | tz range between '60 days' preceding and '1 day' following | iv range between '23 hours' preceding and '1 day' following | iv desc range '1 mon' preceding | d range between '1 day' following and '3 mons' following | n range between 1 following and 2 following | d nulls first range between unbounded preceding and '1 mon' following | f nulls first range between 1 preceding and unbounded following
select i, count(*) over (order by {typed}), array_agg(i) over (order by {typed} exclude current row) from nums order by i;
select i, last_value(i) over (order by {typed}), first_value(i) over (order by {typed}) from nums order by i;
select sum(i) over (order by i range 1.5 preceding) from nums;
select sum(i) over (order by n range 1.5::float8 preceding) from nums;
select sum(i) over (order by d range 1 preceding) from nums;
select sum(i) over (order by ts range '-1 day' preceding) from nums;
select sum(i) over (order by i range between -1 preceding and current row) from nums;
select sum(i) over (order by f range between 'NaN' preceding and current row) from nums;
select sum(i) over (order by t range between 'a' preceding and current row) from nums;
select sum(i) over (order by i rows between 1.5 preceding and current row) from nums;
select sum(i) over (order by i rows between 'x' preceding and current row) from nums;
select sum(i) over (order by i groups between 2 following and 1 following) from nums;
select i, sum(i) over (order by i rows between 1 + 1 preceding and abs(-1) following) from nums order by i;
select sum(i) over (order by i rows between i preceding and current row) from nums;
select x, count(*) over (order by x range between '1 hour' preceding and '30 minutes' following) from (values (time '00:10'), ('01:00'), ('01:05'), ('23:50')) v(x) order by x;
select x, count(*) over (order by x range between '1 day 1 hour' preceding and '-1 day 30 minutes' following) from (values (time '00:10'), ('01:00'), ('01:05'), ('23:50')) v(x) order by x;
select x, count(*) over (order by x range between '1 hour' preceding and '30 minutes' following) from (values (timetz '00:10+00'), ('01:00+00'), ('01:05+01'), ('23:50+00')) v(x) order by x;
select k, x, sum(x) over (partition by k order by x range 1 preceding), row_number() over (partition by k order by x) from (values (1, 1), (1, 2), (null, 5), (null, 6), (2, null), (2, 3)) v(k, x) order by 1, 2;
select * from (select id, dept, rank() over (partition by dept order by salary desc) r, dense_rank() over (partition by dept order by salary desc) d from emp) x where r <= 2 order by 1;
select * from (select id, dept, dense_rank() over (partition by dept order by salary desc) d from emp) x where d = 2 order by 1;
select * from (select id, dept, row_number() over (partition by dept order by salary desc, id) rn from emp) x where rn between 2 and 3 order by 1;
