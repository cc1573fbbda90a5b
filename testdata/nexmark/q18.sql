-- The last bid of every bidder on every auction.
SELECT auction, bidder, price, channel, url, date_time FROM (
  SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS rank FROM bid
) r WHERE rank <= 1
