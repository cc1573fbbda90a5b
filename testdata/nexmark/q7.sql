-- The bids with the highest price of each window of 10 s.
SELECT b.auction, b.bidder, b.price, b.window_start FROM tumble(bid, date_time, INTERVAL '10 seconds') b JOIN (
  SELECT max(price) AS maxprice, window_start, window_end FROM tumble(bid, date_time, INTERVAL '10 seconds')
  GROUP BY window_start, window_end
) m ON b.window_start = m.window_start AND b.price = m.maxprice
EMIT ON WINDOW CLOSE
