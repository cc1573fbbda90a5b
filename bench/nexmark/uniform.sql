-- A million keys, of which hardly two bids in sequence have one.
SELECT (price * 7919 + bidder) % 1000003 AS k, count(*) AS bids, avg(price) AS price, max(date_time) AS last FROM bid GROUP BY 1
