-- Bids and their sum per auction and window of 10 s.
SELECT auction, window_start, count(*) AS bids, sum(price) AS total FROM tumble(bid, date_time, INTERVAL '10 seconds')
GROUP BY auction, window_start
EMIT ON WINDOW CLOSE
