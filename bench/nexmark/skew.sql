-- Nine bids of ten have one key.
SELECT CASE WHEN price % 10 = 0 THEN bidder ELSE 0 END AS k, count(*) AS bids, avg(price) AS price, max(date_time) AS last FROM bid GROUP BY 1
