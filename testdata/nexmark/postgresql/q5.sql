-- Windows that a row is in begin at the last multiple of 2 s before it and at the four before that.
WITH counts AS (
  SELECT auction, count(*) AS num, w AS window_start
  FROM bid, generate_series(0, 4) i, LATERAL (SELECT date_bin('2 seconds', date_time, '2015-07-15') - i * INTERVAL '2 seconds' AS w) s
  GROUP BY auction, w
)
SELECT auction, num, window_start FROM (SELECT *, rank() OVER (PARTITION BY window_start ORDER BY num DESC) AS r FROM counts) x WHERE r = 1
