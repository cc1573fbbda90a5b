-- The auctions with the most bids in each window of 10 s, every 2 s.
SELECT a.auction, a.num, a.window_start FROM (
  SELECT auction, count(*) AS num, window_start, window_end FROM hop(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
  GROUP BY auction, window_start, window_end
) a JOIN (
  SELECT max(num) AS maxn, window_start, window_end FROM (
    SELECT auction, count(*) AS num, window_start, window_end FROM hop(bid, date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')
    GROUP BY auction, window_start, window_end
  ) c GROUP BY window_start, window_end
) m ON a.window_start = m.window_start AND a.window_end = m.window_end AND a.num >= m.maxn
EMIT ON WINDOW CLOSE
