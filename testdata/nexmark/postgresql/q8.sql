SELECT DISTINCT p.id, p.name, p.w FROM (SELECT *, date_bin('10 seconds', date_time, '2015-07-15') AS w FROM person) p
JOIN (SELECT seller, date_bin('10 seconds', date_time, '2015-07-15') AS w FROM auction) a ON p.id = a.seller AND p.w = a.w
