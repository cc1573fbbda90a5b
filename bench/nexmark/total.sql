-- All bids are one group.
SELECT count(*) AS bids, avg(price) AS price, max(date_time) AS last FROM bid
