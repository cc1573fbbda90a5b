-- The same, with results that change while their window is open.
SELECT auction, window_start, count(*) AS bids, sum(price) AS total FROM tumble(bid, date_time, INTERVAL '10 seconds')
GROUP BY auction, window_start
