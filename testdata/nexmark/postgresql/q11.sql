-- A session goes on while less than 10 s pass.
WITH gaps AS (SELECT bidder, date_time, date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) >= INTERVAL '10 seconds' AS gap FROM bid),
  islands AS (SELECT bidder, date_time, count(*) FILTER (WHERE gap) OVER (PARTITION BY bidder ORDER BY date_time) AS island FROM gaps)
SELECT bidder, count(*), min(date_time), max(date_time) + INTERVAL '10 seconds' FROM islands GROUP BY bidder, island
