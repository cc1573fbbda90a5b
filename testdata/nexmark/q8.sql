-- New persons who opened auctions within the same window of 10 s.
SELECT p.id, p.name, p.window_start FROM (
  SELECT id, name, window_start, window_end FROM tumble(person, date_time, INTERVAL '10 seconds')
  GROUP BY id, name, window_start, window_end
) p JOIN (
  SELECT seller, window_start, window_end FROM tumble(auction, date_time, INTERVAL '10 seconds')
  GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end
