-- The ten highest bids of every auction.
SELECT * FROM (SELECT auction, bidder, price, date_time, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank FROM bid) r WHERE rank <= 10
