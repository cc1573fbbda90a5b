-- All bids with their day and minute, as the partitions of a log.
SELECT auction, bidder, price, date_time, extra, to_char(date_time, 'YYYY-MM-DD') AS dt, to_char(date_time, 'HH24:MI') AS hm FROM bid
