-- Subqueries, CTEs, LATERAL and joins.
--! views
--! setup
create table emp (id int primary key, name text, dept text, salary numeric(10,2), hired date, boss int, bonus float8);
insert into emp values (1, 'Ann', 'eng', 5000, '2020-01-15', null, 1.5), (2, 'Bob', 'eng', 4000, '2021-03-01', 1, null), (3, 'Cyd', 'eng', 4000, '2021-03-01', 1, 2.25), (4, 'Dan', 'ops', 3000, '2019-07-20', 1, 0), (5, 'Eve', 'ops', 3500.5, null, 4, -1), (6, 'Fay', 'hr', null, '2022-11-11', null, null), (7, null, null, 100, '2020-02-29', 6, 3);
create table dept (code text primary key, title text, floor int);
insert into dept values ('eng', 'Engineering', 3), ('ops', 'Operations', 1), ('law', 'Legal', null);
create table nums (i int primary key, s int2, b bigint, f float8, r float4, n numeric, t text, v varchar(10), c char(4), ok bool, d date, ts timestamp, tz timestamptz, iv interval, u uuid, j jsonb, a int[], by bytea);
insert into nums values (1, 1, 10, 1.5, 0.5, 1.10, 'a', 'va', 'c', true, '2024-01-01', '2024-01-01 10:00', '2024-01-01 10:00+00', '1 day', '00000000-0000-0000-0000-000000000001', '{"k":1}', '{1,2}', '\x01'), (2, 2, 20, -2.5, 1.25, 2.20, 'b', 'vb', 'd', false, '2024-02-29', '2024-02-29 23:59:59.5', '2024-02-29 10:00+02', '2 hours', '00000000-0000-0000-0000-000000000002', '[1]', '{3}', '\x0203'), (3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null), (4, 1, 30, 'NaN', 'inf', 'NaN', 'a', 'va', 'c', true, 'infinity', 'infinity', '-infinity', '-1 mon', '00000000-0000-0000-0000-000000000001', 'null', '{}', '');
--! queries
--! list sub = (select max(salary) from emp) | (select 4000) | (select null::int) | (select salary from emp where id = 1) | (select salary from emp where false)
--! list cmp = = | <> | < | >
--! list qn = any | all | some
select id from emp where salary {cmp} {sub} order by id;
select id, salary {cmp} {qn} (select salary from emp where dept = 'eng') from emp order by id;
select id, salary {cmp} {qn} (select salary from emp where false) from emp order by id;
select id, id {cmp} {qn} (array[1,4]) from emp order by id;
select id, id {cmp} {qn} (select boss from emp) from emp order by id;
--! list jt = join | left join | right join | full join | inner join | left outer join
--! list on = on e.dept = d.code | on e.dept = d.code and d.floor > 1 | on true | on e.id = d.floor | on e.dept > d.code | on false | on e.dept = d.code and e.salary > 3500
select e.id, d.code from emp e {jt} dept d {on};
select count(*), count(e.id), count(d.code) from emp e {jt} dept d {on};
select e.id, d.code, b.name from emp e {jt} dept d {on} left join emp b on b.id = e.boss;
select d.code, count(e.id) from emp e {jt} dept d {on} where coalesce(d.floor, 0) < 3 group by d.code;
select e.name, b.name from emp e join emp b on e.boss = b.id order by e.id;
select * from dept cross join (values (1), (2)) v(x) order by 1, 4;
select * from dept, lateral (select id from emp where dept = code order by id limit 1) x order by 1;
select d.code, x.id from dept d left join lateral (select id, salary from emp where dept = d.code order by salary desc, id limit 2) x on true order by 1, 2;
select * from dept natural join (select 'eng' as code, 5 as extra) x;
select * from emp join dept on dept = code where floor = 3 order by id;
select * from (select 1 as a) x join (select 1 as a, 2 as b) y using (a);
select x.a, y.a, a from (select 1 as a) x full join (select 2 as a) y using (a) order by a;
select * from (values (1, 'a')) x(i, s) left join (values (1, 'b'), (2, 'c')) y(i, t) using (i);
select * from dept d join dept d on true;
select id from emp e, dept d where id = code;
select * from emp e join dept d on e.nosuch = d.code;
select e.id from emp e where e.dept = d.code;
select code from emp, dept, dept d2;
select x from (select 1 as x) s where s.x = 1;
select (select id) from emp order by id limit 1;
select (select count(*) from emp e2 where e2.dept = e.dept) from emp e order by id;
select id, (select name from emp b where b.id = e.boss) from emp e order by id;
select (select id from emp);
select (select id, name from emp where id = 1);
select (select 1 where false);
select exists (select 1 from emp where salary > 4500), not exists (select 1 where false), exists (select);
select id from emp e where exists (select 1 from dept d where d.code = e.dept) order by id;
select id from emp e where not exists (select 1 from dept d where d.code = e.dept) order by id;
select id from emp where dept in (select code from dept) order by id;
select id from emp where dept not in (select code from dept) order by id;
select id from emp where boss not in (select boss from emp) order by id;
select id from emp where (dept, salary) in (select dept, max(salary) from emp group by dept) order by id;
select id from emp e where salary = (select max(salary) from emp where dept = e.dept) order by id;
select id from emp e where salary > (select avg(salary) from emp x where x.dept = e.dept) order by id;
select id in (select boss from emp) from emp order by id;
select 1 in (select 2 where false), null in (select 1), null in (select 1 where false), 1 not in (select null);
select 1 = (select 1, 2);
select 1 in (select 1, 2);
select array(select name from emp where name is not null order by name desc);
select coalesce((select salary from emp where id = 6), -1);
select (select sum(salary) from emp where dept = d.code) s, d.code from dept d order by s nulls last;
select d.code from dept d order by (select count(*) from emp where dept = d.code), d.code;
select max((select count(*) from dept)) from emp;
select (select max(e.id)) from emp e;
select (select sum(e.id + d.floor) from dept d) from emp e order by e.id;
select * from (select id, (select title from dept where code = dept) t from emp) x where t like 'E%' order by id;
select count(*) from emp where id = (select min(id) from emp) or id = (select max(id) from emp);
select * from (select * from (select 1 as x) a) b;
select * from (select 1);
select * from (values (1, 'a'), (2, 'b')) as t (n, s) where n > 1;
select * from (values (1)) t(a, b);
select * from (select 1, 2) t(a, b);
select t.* from (select 1 as a, 2 as a) t;
select t.a from (select 1 as a, 2 as a) t;
select t from (select 1 as a, 'x' as b) t;
with a as (select 1 as x) select * from a;
with a(y) as (select 1), b as (select y + 1 as z from a) select * from a, b;
with a as (select id from emp where dept = 'eng') select count(*) from a a1 join a a2 on true;
with a as materialized (select 1 as x) select * from a;
with a as not materialized (select 1 as x) select * from a;
with a as (select 1), a as (select 2) select 1;
with a(x, y) as (select 1) select * from a;
with a as (select 1 as x) select (select x from a), x from a;
with a as (select 1 as x) select * from a union all select x + 1 from a;
with a as (values (1), (2)) select sum(column1) from a;
with a as (select * from b), b as (select 1) select * from a;
with dept as (select 'shadow' as code) select * from dept;
with a as (select 1 as x) select * from (with b as (select 2 as y) select * from a, b) t;
with a as (select dept, sum(salary) s from emp group by dept) select dept from a where s > (select avg(s) from a) order by 1;
with recursive t(n) as (values (1) union all select n + 1 from t where n < 5) select sum(n) from t;
with recursive t(n) as (select 1 union select (n % 3) + 1 from t) select * from t order by 1;
with recursive r as (select id, name, 0 as depth from emp where boss is null union all select e.id, e.name, r.depth + 1 from emp e join r on e.boss = r.id) select * from r order by id;
with x as (select 1) insert into dept select 'zz', 'x', 1 from x returning code;
with d as (delete from dept where code = 'zz' returning code) select * from d;
