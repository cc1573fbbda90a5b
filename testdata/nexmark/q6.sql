-- The average winning price of each seller's last ten auctions.
SELECT q.seller, avg(q.final) OVER (PARTITION BY q.seller ORDER BY q.date_time, q.id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg FROM (
  SELECT a.id, a.seller, a.date_time, max(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.seller, a.date_time
) q
