-- The bids of each person in each session of activity.
SELECT bidder, count(*) AS bid_count, window_start AS start_time, window_end AS end_time FROM session(bid, bidder, date_time, INTERVAL '10 seconds')
GROUP BY bidder, window_start, window_end
EMIT ON WINDOW CLOSE
