-- Bids, bidders and auctions per day, by price.
SELECT date_trunc('day', date_time) AS day, count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  count(DISTINCT bidder) AS total_bidders, count(DISTINCT auction) AS total_auctions
FROM bid GROUP BY date_trunc('day', date_time)
