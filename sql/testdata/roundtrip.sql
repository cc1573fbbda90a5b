SELECT a.x, b.* FROM a JOIN b ON a.x = b.x LEFT JOIN c ON c.x = b.x
SELECT * FROM a FULL JOIN b ON a.x = b.x
SELECT x FROM a FULL JOIN b USING (x, y)
SELECT x FROM a NATURAL FULL JOIN b
SELECT j.x FROM a JOIN b USING (x) AS j
SELECT j.p FROM (a JOIN b ON true) AS j(p, q)
SELECT 1 AS one FROM a, b, c CROSS JOIN d
SELECT 1 AS one FROM a JOIN (b LEFT JOIN c ON b.x = c.x) ON a.x = b.x, d
SELECT g.* FROM generate_series(1, 3) WITH ORDINALITY AS g(x, n)
SELECT r.* FROM ROWS FROM (generate_series(1,2), generate_series(1,3)) AS r(a, b)
SELECT r.* FROM ROWS FROM (json_to_record('{}') AS (a int, b text), generate_series(1,3)) WITH ORDINALITY AS r
SELECT * FROM json_to_record('{}') AS r(a int, b text COLLATE "C", c numeric(10,2)[])
SELECT * FROM json_to_record('{}') AS (a int)
SELECT p, q FROM a AS z(p, q)
SELECT * FROM (SELECT 1, 2) AS z(p, q)
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(n, s)
SELECT * FROM t, LATERAL (SELECT t.a + 1) AS z(q)
SELECT * FROM t TABLESAMPLE bernoulli (10) REPEATABLE (3)
SELECT z.a FROM t AS z TABLESAMPLE system (2.5)
SELECT DISTINCT a, b FROM t
SELECT DISTINCT ON (a, b + 1) a, c FROM t ORDER BY a, b + 1, c DESC
SELECT FROM t
VALUES (1, 'a'), (2, NULL)
TABLE t
SELECT count(*) FILTER (WHERE a > 1) AS n FROM t
SELECT string_agg(DISTINCT s, ',' ORDER BY s) AS z FROM t
SELECT string_agg(s, ',' ORDER BY a DESC NULLS LAST, b) AS z FROM t
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS p, mode() WITHIN GROUP (ORDER BY s DESC) FILTER (WHERE a > 0) AS m FROM t
SELECT concat(VARIADIC arr) AS z FROM t
SELECT make_interval(days => 3, hours := 2) AS i
SELECT sum(a) OVER (PARTITION BY b, 1 ORDER BY c DESC GROUPS BETWEEN 1 + 1 PRECEDING AND 2 FOLLOWING EXCLUDE TIES) AS s FROM t
SELECT sum(a) OVER (ORDER BY ts RANGE BETWEEN interval '1 day' PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS s FROM t
SELECT sum(a) OVER (ROWS 3 PRECEDING) AS s, row_number() OVER () AS r FROM t
SELECT lag(a, 2) OVER w AS l, rank() OVER v AS r, count(*) FILTER (WHERE b > 0) OVER (v ROWS UNBOUNDED PRECEDING EXCLUDE GROUP) AS n FROM t WINDOW w AS (PARTITION BY b ORDER BY c), v AS (ORDER BY c)
SELECT a, sum(b) AS s FROM t GROUP BY GROUPING SETS ((a, c), (), ROLLUP (a, (c, d)), CUBE (d)), a
SELECT a, grouping(a) AS g FROM t GROUP BY DISTINCT ROLLUP (a, b), CUBE (a)
SELECT a FROM t GROUP BY 1 HAVING count(*) > 1
SELECT 1 AS x HAVING true
SELECT a FROM t ORDER BY 1, (a), b NULLS FIRST LIMIT 3 OFFSET 2
SELECT a FROM t ORDER BY a USING >, b USING < NULLS FIRST
SELECT a FROM t OFFSET 2 ROWS
SELECT a FROM t LIMIT ALL
SELECT a FROM t LIMIT (SELECT 3)
SELECT a FROM t ORDER BY a FETCH FIRST 3 ROWS WITH TIES
SELECT a FROM t FETCH NEXT ROW ONLY
SELECT 1 AS a UNION SELECT 2 UNION ALL SELECT 3
(SELECT 1 AS a UNION SELECT 2) INTERSECT ALL SELECT 3 ORDER BY 1
SELECT 1 AS a EXCEPT SELECT 2 INTERSECT SELECT 3
(SELECT a FROM t LIMIT 1) UNION ALL (SELECT b FROM u ORDER BY b)
((SELECT 1 AS a) UNION SELECT 2) ORDER BY a LIMIT 1
SELECT 1 AS a UNION (SELECT 2 UNION ALL SELECT 2)
WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT * FROM r
WITH x AS (SELECT 1 AS a), y AS (SELECT a FROM x) SELECT * FROM y WHERE a IN (WITH z AS (SELECT 1) SELECT * FROM z)
SELECT ARRAY[1,2] AS a, ARRAY[[1],[2]] AS b, ARRAY(SELECT a FROM t) AS c, arr[1] AS d, arr[1:2] AS e, arr[:2] AS f, arr[1:] AS g FROM t
SELECT (ROW(1, 'x')).f1 AS a, ROW(t.*) AS r, ROW() AS e, (a, b) AS i FROM t
SELECT (pg_timezone_names()).name AS n
SELECT (t).* FROM t
SELECT j -> 'a' ->> 'b' AS a, j #> '{a}' AS b, j @> '{}' AS c, j ? 'k' AS d, j ?| '{k}' AS e FROM t
SELECT s ~ 'x' AS a, s !~* 'x' AS b, a ^ b AS c, a # b AS d, s || s AS e, @ a AS f, |/ a AS g, a & b AS h, ~ a AS i, s OPERATOR(pg_catalog.~) s AS k FROM t
SELECT ts AT TIME ZONE 'utc' AT TIME ZONE 'x' AS z FROM t
SELECT a IS DISTINCT FROM b AS x, a IS NOT DISTINCT FROM b + 1 AS y FROM t
SELECT (a > b) IS UNKNOWN AS a, (a > b) IS NOT UNKNOWN AS b, (a > b) IS NOT TRUE AS c, a ISNULL AS d, a NOTNULL AS e, (a, b) IS NULL AS f FROM t
SELECT s COLLATE "C" AS c, s < s COLLATE pg_catalog."default" AS d FROM t
SELECT (a, b) < (c, d) AS x, (a, b) IN (SELECT a, b FROM u) AS y, (ts, ts) OVERLAPS (ts, interval '1 day') AS z, (a, b) IN ((1, 2), (3, 4)) AS w FROM t
SELECT a = ANY (arr) AS a, a <> ALL (ARRAY[1]) AS b, a = SOME (SELECT a FROM u) AS c, s LIKE ANY (ARRAY['x']) AS d, s NOT ILIKE ALL (ARRAY['x']) AS e, s ~~ ALL (SELECT s FROM t) AS f, a < ANY ((SELECT arr FROM t LIMIT 1)::int[]) AS g FROM t
SELECT a IN (1, 2) AS a, a NOT IN (SELECT a FROM u) AS b, EXISTS (SELECT 1) AS c, NOT EXISTS (SELECT 1) AS d FROM t
SELECT s LIKE 'x' ESCAPE '!' AS a, s NOT ILIKE s AS b, s SIMILAR TO 'x' AS c, s NOT SIMILAR TO 'x' ESCAPE '#' AS d, a BETWEEN SYMMETRIC 1 AND 2 AS e, a NOT BETWEEN 1 AND 2 AS f, a NOT BETWEEN SYMMETRIC b AND c AS g FROM t
SELECT E'a\nb\'c\\d\x41\101\u00e9' AS a, $$it's$$ AS b, $q$x$q$ AS c, U&'\0061\+00006f' AS d, U&'!0062' UESCAPE '!' AS e, B'101' AS f, X'1F' AS g, N'n' AS h
SELECT 1.50 AS a, 1e10 AS b, .5 AS c, 99999999999999999999 AS d, 5. AS e, 2147483648 AS f, -9223372036854775808 AS g
SELECT DATE '2020-01-01' AS a, interval '1' minute AS b, interval(3) '1 s' AS c, interval '1-2' year to month AS d, timestamp with time zone '2020-01-01' AS e, point '(1,2)' AS f, pg_catalog.int4 '3' AS g, numeric(5,2) '1.5' AS h, time(3) '10:00' AS i
SELECT extract(epoch FROM ts) AS a, position('a' IN s) AS b, substring(s FROM 1 FOR 2) AS c, substring(s, 1) AS d, overlay(s PLACING s FROM 1 FOR 2) AS e, trim(LEADING 'x' FROM s) AS f, trim(s) AS g, trim(TRAILING FROM s) AS h, substring(s FOR 2) AS i, substring(s SIMILAR 'x' ESCAPE '#') AS k, substring(s FROM 'x') AS l, extract('year' FROM ts) AS m, trim(both 'a' from s) AS n FROM t
SELECT current_timestamp AS a, current_date AS b, localtime(3) AS c, current_user AS d, current_schema AS e, current_schema() AS f, current_catalog AS g, session_user AS h
SELECT coalesce(a, b) AS a, nullif(a, b) AS b, greatest(a, b) AS c, CASE a WHEN 1 THEN 2 ELSE 3 END AS d, CASE WHEN a > 1 THEN 'x' WHEN a < 0 THEN s END AS e, least(a, 1.5) AS f FROM t
SELECT x::numeric(10,2) AS a, CAST(x AS timestamp(3) with time zone) AS b, s::"char" AS c, arr::text[][3] AS d, s::character varying(5) AS e, s::char AS f, x::double precision AS g, s::bit varying AS h FROM t WHERE false
SELECT - a ^ 2 AS a, NOT a = b IS NULL AS b, (a + b) || s AS c, a > 1 OR b > 1 AND c > 1 AS d, - 2 - - 3 AS e, a + b * c - d AS f, a - (b - c) AS g, (a = b) = (c = d) AS h, NOT NOT a > 1 AS i, + a AS k FROM t
SELECT 2 - 1 - 1 AS a, 2 ^ 3 ^ 2 AS b, 8 / 4 / 2 AS c, 7 % 3 * 2 AS d, 1 + 2 << 1 AS e, -1 :: int4 AS f, 'a' || 'b' || 1 AS g
SELECT "Select", "a""b" FROM (SELECT 1 AS "Select", 2 AS "a""b") AS "X Y"
SELECT key, rank, groups FROM (SELECT 1 key, 2 AS rank, 3 groups) AS dual
SELECT 1 /* a /* nested */ b */ + 2 AS x -- end
SELECT a FROM t WHERE a = 1 AND (b = 2 OR c = 3) AND NOT (d = 4) OR a IS NULL
SELECT a FROM t WHERE (SELECT max(b) FROM u WHERE u.a = t.a) > 1
SELECT t.a, (SELECT 1) AS q FROM t WHERE t.a IN (((SELECT 1)))
SELECT * FROM ((SELECT 1 AS a) UNION (SELECT 2)) AS z
SELECT * FROM ((a JOIN b ON true)) CROSS JOIN c AS q
SELECT count(DISTINCT a) AS a, array_agg(a ORDER BY b USING >) AS b, count(t.*) AS c FROM t
SELECT pg_collation_for(s) AS a, collation for (s) AS b, normalize(s, NFC) AS c, s IS NFKC NORMALIZED AS d, s IS NOT NORMALIZED AS e FROM t
SELECT interval '1' day AS a, interval '3' hour to second(2) AS b, interval '5' second(3) AS c
SELECT now() - interval '5 minutes' AS a
SELECT t1.a FROM ONLY t AS t1
SELECT a FROM t* 
SELECT s LIKE 'a%' AND s NOT LIKE 'b%' AS x FROM t
SELECT a.x y, a.y AS "order" FROM public.a
SELECT x.p.q FROM x
SELECT streamdb.public.t.a FROM streamdb.public.t
SELECT pg_catalog.lower(s) AS x FROM t
SELECT "overlay"(s, s, 1) AS a, overlay(s, s, 1, 2) AS b FROM t
SELECT a, count(*) FROM t GROUP BY (a, b), a HAVING count(*) FILTER (WHERE a > 0) > 1
SELECT * FROM tumble(bid, date_time, INTERVAL '10' SECOND)
SELECT window_start, count(*) FROM hop(s.bid, ts, interval '1' minute, interval '5 minutes') AS w GROUP BY window_start
SELECT * FROM s JOIN v FOR SYSTEM_TIME AS OF PROCTIME() AS x ON s.a = x.a
SELECT * FROM s LEFT JOIN v AS x FOR SYSTEM_TIME AS OF PROCTIME() ON s.a = x.a
SELECT $1, $2::int FROM t LIMIT $3
SELECT * FROM l ASOF JOIN r ON l.k = r.k AND l.t >= r.t ASOF LEFT OUTER JOIN s AS x (a, b) ON l.t < x.b
SELECT asof.a FROM t AS asof JOIN asof x ON asof.a = x.a
SELECT 0x1F AS a, 1_000 AS b
SELECT double precision '1.5', character varying(3) 'abc', timestamp with time zone '2024-01-01', double FROM t
SELECT (a)[1][2], a[2:3][1:1] FROM t
SELECT t.* IS NULL, t.* FROM t WHERE t.* = u.*
