-- The same per channel and day.
SELECT channel, date_trunc('day', date_time) AS day, max(date_time) AS last_bid, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders, count(DISTINCT auction) AS total_auctions
FROM bid GROUP BY channel, date_trunc('day', date_time)
