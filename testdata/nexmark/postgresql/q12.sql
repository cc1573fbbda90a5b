-- Which windows there are depends on when the bids are read; the bids of a bidder in all of them do not.
SELECT bidder, count(*) FROM bid GROUP BY bidder
