-- The bids of each bidder in each window of 10 s of processing time.
SELECT bidder, count(*) AS bid_count, window_start AS start_time, window_end AS end_time
FROM tumble((SELECT *, PROCTIME() AS p_time FROM bid), p_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
EMIT ON WINDOW CLOSE
