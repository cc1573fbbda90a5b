SELECT auction, bidder, price, window_start FROM (
  SELECT *, max(price) OVER (PARTITION BY window_start) AS highest FROM (SELECT *, date_bin('10 seconds', date_time, '2015-07-15') AS window_start FROM bid) w
) x WHERE price = highest
