-- The bids with what a table knows of their auctions at the time.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid b JOIN side_input FOR SYSTEM_TIME AS OF PROCTIME() s ON b.auction % 10000 = s.key
